//! Removing the oldest entries: XTRIM, and the same options of XADD.

use dunlin_resp::ReplyBuffer;

use super::{parse_id, propagation::record_edit};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    notify::EventClass,
    value::{
        CollectionLimits, Stream,
        stream::{Trim, TrimTo, Trimmed},
    },
};

pub(super) const XTRIM: Command = Command {
    name: "xtrim",
    summary: "Removes the oldest entries of a stream, down to a length or up to an ID, and returns how many.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(n) in the number of entries removed",
    arity: Arity::AtLeast(4),
    run: Run::Write(xtrim),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), TRIM, REFERENCES.optional()],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

/// The options of trimming.
pub(super) const TRIM: Argument = Argument::block(
    "trim",
    &[
        Argument::one_of(
            "strategy",
            &[Argument::word("maxlen", "MAXLEN"), Argument::word("minid", "MINID").since("6.2.0")],
        ),
        Argument::one_of("operator", &[Argument::word("equal", "="), Argument::word("approximately", "~")])
            .optional(),
        Argument::string("threshold"),
        Argument::integer("count").after("LIMIT").optional().since("6.2.0"),
    ],
);

/// The treatment of references that groups have to removed entries.
pub(super) const REFERENCES: Argument = Argument::one_of(
    "references",
    &[
        Argument::word("keepref", "KEEPREF"),
        Argument::word("delref", "DELREF"),
        Argument::word("acked", "ACKED"),
    ],
)
.since("8.2.0");

/// The treatment of the deliveries of an entry that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum References {
    /// Deliveries stay.
    #[default]
    Keep,
    /// Deliveries go too.
    Delete,
    /// Entries that a group has not read or not acknowledged stay.
    Acknowledged,
}

impl References {
    /// Reads `KEEPREF`, `DELREF` or `ACKED`, if one is next.
    pub(super) fn read(args: &mut Args<'_>) -> Option<Self> {
        let names = [("KEEPREF", Self::Keep), ("DELREF", Self::Delete), ("ACKED", Self::Acknowledged)];
        names.into_iter().find(|(name, _)| args.token(name)).map(|(_, references)| references)
    }
}

/// The options of trimming as they are read.
#[derive(Debug, Default)]
pub(super) struct TrimOptions {
    to: Option<TrimTo>,
    is_approximate: bool,
    limit: Option<u64>,
    references: Option<References>,
}

/// The trim, and the treatment of references.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrimPlan {
    trim: Trim,
    references: References,
}

impl TrimOptions {
    /// Reads one option. Returns whether there was one.
    pub(super) fn read(&mut self, args: &mut Args<'_>) -> Result<bool, CommandError> {
        if args.token_with("MAXLEN", 1) {
            self.read_operator(args)?;
            let length = args.integer();
            args.check()?;
            let length = u64::try_from(length);
            let length = length.map_err(|_| CommandError::text("ERR The MAXLEN argument must be >= 0."))?;
            self.to = Some(TrimTo::Length(length));
        } else if args.token_with("MINID", 1) {
            self.read_operator(args)?;
            self.to = Some(TrimTo::From(parse_id(args.word())?));
        } else if args.token_with("LIMIT", 1) {
            let limit = args.integer();
            args.check()?;
            let limit = u64::try_from(limit);
            self.limit = Some(limit.map_err(|_| CommandError::text("ERR The LIMIT argument must be >= 0."))?);
        } else if self.references.is_none() {
            self.references = References::read(args);
            return Ok(self.references.is_some());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads `~` or `=`, which are operators only if a threshold follows.
    fn read_operator(&mut self, args: &mut Args<'_>) -> CommandResult {
        if self.to.is_some() {
            return Err(CommandError::text(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        self.is_approximate = args.token_with("~", 1);
        if !self.is_approximate {
            args.token_with("=", 1);
        }
        Ok(())
    }

    /// Combines the options to a plan; `None` if nothing is to be trimmed. Logs of Redis have `LIMIT`
    /// where clients must not.
    pub(super) fn plan(
        &self,
        limits: &CollectionLimits,
        replaying: bool,
    ) -> Result<Option<TrimPlan>, CommandError> {
        let limit = self.limit.unwrap_or(0);
        let Some(to) = self.to else {
            if limit > 0 {
                return Err(CommandError::text(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                ));
            }
            return Ok(None);
        };
        if self.limit.is_some() && !self.is_approximate && !replaying {
            return Err(CommandError::text(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        let entries_max = match self.limit {
            Some(limit) if self.is_approximate => limit,
            None if self.is_approximate => approximate_entries_max(limits),
            _ => 0,
        };
        let trim = Trim { to, is_approximate: self.is_approximate, entries_max };
        Ok(Some(TrimPlan { trim, references: self.references.unwrap_or_default() }))
    }
}

/// How many entries an approximate trim removes at most without a LIMIT: those of a hundred
/// nodes, within reason.
fn approximate_entries_max(limits: &CollectionLimits) -> u64 {
    match limits.stream_node_max_entries.saturating_mul(100) {
        0 => 10_000,
        entries => entries.min(1_000_000) as u64,
    }
}

impl TrimPlan {
    /// Removes entries.
    pub(super) fn run(self, stream: &mut Stream) -> Trimmed {
        match self.references {
            References::Keep => stream.log_mut().trim(self.trim),
            References::Delete => stream.trim_with_deliveries(self.trim),
            References::Acknowledged => stream.trim_unreferenced(self.trim),
        }
    }
}

/// Frees trimmed nodes at a moment that delays no client; returns how many entries were trimmed.
pub(super) fn discard(context: &mut WriteContext<'_>, trimmed: Trimmed) -> u64 {
    let entries = trimmed.entries;
    if trimmed.is_large() {
        context.discard_other(trimmed);
    }
    entries
}

fn xtrim(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut options = TrimOptions::default();
    while !args.is_empty() {
        if !options.read(args)? {
            return Err(CommandError::Syntax);
        }
    }
    let plan = options.plan(context.layout().limits, context.is_replaying())?;
    let plan =
        plan.ok_or(CommandError::text("ERR syntax error, XTRIM must be called with MAXLEN or MINID"))?;
    let removed = context.update(key, |stream: &mut Stream| {
        let trimmed = plan.run(stream);
        let changes = trimmed.entries > 0;
        (trimmed, changes)
    })?;
    let removed = removed.map_or(0, |trimmed| discard(context, trimmed));
    if removed > 0 {
        context.count_changes(removed as usize);
        record_edit(context, key, args.words(), None);
        context.notify(EventClass::Stream, "xtrim", key);
    }
    reply.integer(removed as i64);
    Ok(())
}
