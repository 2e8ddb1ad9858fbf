//! `dunlin adopt`: a data set moves to another server while both serve.
//!
//! ```text
//! check ─▶ NEW follows OLD ─▶ compare, in slices ─▶ (a word) ─▶ OLD pauses writes ─ equal offsets ─ NEW is the primary ─▶ OLD follows NEW
//! ```
//!
//! Until the word, OLD is what it was: NEW is one of its replicas. A pause that takes too long is given up, and OLD serves on.

mod check;
mod compare;
mod digest;
mod hand_over;
mod inventory;
mod replicate;
mod side;

use std::{
    io::{BufRead, IsTerminal},
    time::Duration,
};

use clap::Parser;

use self::side::Side;

const EXAMPLES: &str = "\
Examples:
  dunlin adopt redis://old:6379 --dry-run             what is there, and what would be lost
  dunlin adopt redis://old:6379                       into the server at 127.0.0.1:6379
  dunlin adopt redis://:PASSWORD@old --into redis://:OTHER@new:7000
  dunlin adopt redis://dunlin --into redis://redis    the way out works the same
  dunlin adopt redis://new --into redis://old         the way back, while the old server follows

The steps, in this order:
  1. Versions, modules, databases and memory of both servers are compared; nothing is changed.
  2. The new server becomes a replica of the old one. Both serve reads, the old one serves writes.
  3. All keys are compared, some hundred at a time, while clients go on writing.
  4. At your word, writes are paused at the old server (CLIENT PAUSE … WRITE) until the new one has everything; then the
     new one becomes the primary. Point your clients to it. The length of the pause is printed.
  5. The old server follows the new one and refuses writes, so that a late client loses nothing and you can go back.

The program may be stopped at any time before step 4 and started again: it goes on where it was.";

/// Moves the data set of a running server into another one without downtime, and says what was lost: nothing.
///
/// OLD and NEW may be Dunlin, Redis or Valkey; one of them is a primary that the other one understands. Users,
/// passwords and the configuration are not part of a data set and stay behind.
#[derive(Debug, Parser)]
#[command(name = "adopt", bin_name = "dunlin adopt", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Server that has the data: redis[s]://[[USER:]PASSWORD@]HOST[:PORT]
    #[arg(value_name = "OLD")]
    old: String,
    /// Server that takes it over, as a URI
    #[arg(long, value_name = "NEW", default_value = "redis://127.0.0.1:6379")]
    into: String,
    /// Only say what is there, and what would be lost
    #[arg(long)]
    dry_run: bool,
    /// Replace the keys that the new server has
    #[arg(long)]
    replace: bool,
    /// Hand over as soon as the data sets are equal, without asking
    #[arg(long)]
    hand_over: bool,
    /// Do not compare the keys
    #[arg(long)]
    skip_compare: bool,
    /// Longest pause of writes; where it does not do, nothing is changed
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pause_max: u64,
    /// Address of the old server as the new one reaches it, if that is another
    #[arg(long, value_name = "HOST:PORT")]
    old_address: Option<String>,
    /// Address of the new server as the old one reaches it, if that is another
    #[arg(long, value_name = "HOST:PORT")]
    new_address: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut old = Side::connect("old", &arguments.old, arguments.old_address.as_deref())?;
    let mut new = Side::connect("new", &arguments.into, arguments.new_address.as_deref())?;
    dunlin_print::say!("old   {}\nnew   {}", old.description()?, new.description()?);
    let plan = check::plan(&mut old, &mut new, arguments.replace)?;
    plan.notes.iter().for_each(|note| dunlin_print::say!("note  {note}"));
    let (mut losses, mut refusals) = (Vec::new(), plan.refusals);
    let found = inventory::inventory(&mut old, &mut new)?;
    found.notes.iter().for_each(|note| dunlin_print::say!("note  {note}"));
    losses.extend(found.losses);
    if arguments.dry_run || plan.may_have_foreign_types {
        let mut census = check::census(&mut old, plan.loses_field_expiries)?;
        dunlin_print::say!("keys  {census}");
        census.expect_known(&mut new);
        losses.extend(census.losses());
        // Other servers know no such directive, and refuse or end at such a key.
        match new.directive("module-data").as_deref() {
            Some("keep") => census.foreign().iter().for_each(|line| {
                dunlin_print::say!("KEPT  {line}: as they are, and no command of the new server reads them");
            }),
            Some("refuse") => refusals.extend(
                census.foreign().iter().map(|line| format!("{line}, which module-data refuse does not load")),
            ),
            _ => losses.extend(census.foreign()),
        }
    }
    losses.iter().for_each(|loss| dunlin_print::say!("LOST  {loss}"));
    refusals.iter().for_each(|refusal| dunlin_print::say!("STOP  {refusal}"));
    if arguments.dry_run {
        return match refusals.len() + losses.len() {
            0 => {
                dunlin_print::say!(
                    "Nothing stands in the way, and nothing would be lost. Nothing was changed."
                );
                Ok(())
            }
            _ => Err("it cannot be adopted as it is; nothing was changed".to_owned()),
        };
    }
    if !refusals.is_empty() || !losses.is_empty() {
        return Err("it cannot be adopted as it is; nothing was changed".to_owned());
    }
    replicate::follow(&mut old, &mut new, plan.follows_already)?;
    let unsettled = match arguments.skip_compare {
        true => Vec::new(),
        false => compare::all(&mut old, &mut new)?,
    };
    if !arguments.hand_over && !is_told_to(&mut old, &mut new)? {
        dunlin_print::say!(
            "The new server goes on as a replica. Run the same again with --hand-over to finish, or REPLICAOF NO ONE there."
        );
        return Ok(());
    }
    hand_over::run(
        &mut old,
        &mut new,
        &unsettled,
        plan.old_can_follow,
        Duration::from_secs(arguments.pause_max.max(1)),
    )
}

/// Asks for the word; without a terminal there is none.
fn is_told_to(old: &mut Side, new: &mut Side) -> Result<bool, String> {
    let lag = old.offset()?.saturating_sub(new.offset()?);
    dunlin_print::say!("Both servers have the same data; the new one is {lag} bytes behind.");
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    dunlin_print::say!(
        "Type `hand over` to pause writes at the old server and make the new one the primary, anything else to stop here."
    );
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    Ok(line.trim().eq_ignore_ascii_case("hand over"))
}
