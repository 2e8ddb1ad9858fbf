//! BACKUP: a copy of the data set on disk, made of the files of the log while the server goes on.

use std::{
    path,
    sync::{Arc, mpsc::channel},
};

use dunlin_engine::command::{Args, Arity, Command, CommandError, CommandResult, Flags, Group, Run};
use dunlin_net::Now;
use dunlin_resp::ReplyBuffer;

use super::save::alone;
use crate::{
    aof::begin_rewrite,
    durability::{BackupState, LogOrder},
    executor::{Handler, ServerContext},
    persistence::saving::SaveError,
};

pub(super) const COMMANDS: &[Command] = &[BACKUP];

const BACKUP: Command = Command {
    name: "backup",
    summary: "Holds the commands on backups.",
    since: "8.10.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::Exactly(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "abort",
            summary: "Ends a backup that is not sealed, and removes its files.",
            run: Run::Host(&Handler(abort)),
            ..SUBCOMMAND
        },
        Command {
            name: "cleanup",
            summary: "Removes the files of a sealed or failed backup.",
            run: Run::Host(&Handler(clean_up)),
            ..SUBCOMMAND
        },
        Command {
            name: "help",
            summary: "Lists the subcommands.",
            run: Run::Host(&Handler(super::help)),
            flags: Flags::LOADING.and(Flags::STALE),
            ..SUBCOMMAND
        },
        Command {
            name: "list",
            summary: "Lists the absolute paths of the backup's files that are there so far and do not change.",
            run: Run::Host(&Handler(list)),
            flags: Flags::ADMIN.and(Flags::STALE),
            ..SUBCOMMAND
        },
        Command {
            name: "seal",
            summary: "Ends a backup with the data set as it is now: its files are whole, and no longer change.",
            run: Run::Host(&Handler(seal)),
            flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_MULTI),
            ..SUBCOMMAND
        },
        Command {
            name: "start",
            summary: "Begins a backup in the directory that backupdirname names, which has to be empty.",
            run: Run::Host(&Handler(start)),
            ..SUBCOMMAND
        },
        Command {
            name: "status",
            summary: "Shows the state of the backup, the reason for which it failed, and when it was started and sealed.",
            run: Run::Host(&Handler(status)),
            flags: Flags::ADMIN.and(Flags::STALE),
            ..SUBCOMMAND
        },
    ],
    ..Command::DEFAULT
};

const SUBCOMMAND: Command = Command {
    since: "8.10.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT),
    ..Command::DEFAULT
};

fn refused(reason: String) -> CommandError {
    CommandError::owned(format!("ERR {reason}"))
}

fn start(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let shared = Arc::clone(&context.executor.shared);
    let config = shared.config.current();
    let directory = path::absolute(config.dir.join(&config.backupdirname))
        .map_err(|error| refused(format!("Backup directory cannot be used: {error}")))?;
    // The log of a backup before may be about to end; the log's thread takes its orders in turn.
    if !config.appendonly {
        let begun = context.outside_gate(|shared| shared.durability.begin_backup_with_log(directory));
        let inside = "a backup with appendonly no cannot be started in a transaction".to_owned();
        begun.unwrap_or(Err(inside)).map_err(refused)?;
        reply.ok();
        return Ok(());
    }
    shared.durability.backup().begin(directory, Now::read().unix_ms / 1000).map_err(refused)?;
    let begun = match context.in_transaction {
        // A transaction holds locks that the cut would wait for.
        true => Err(SaveError::Busy),
        false => begin_rewrite(&shared, |work| _ = alone(context, |exclusive| work(exclusive))),
    };
    match begun {
        // A rewrite that began before serves as well: the log has all changes behind its cut.
        Ok(()) | Err(SaveError::InProgress) => {}
        Err(SaveError::Busy | SaveError::BlockedByScript) => shared.durability.rewriting().scheduled = true,
        Err(error @ (SaveError::NoThread | SaveError::InUse(_))) => {
            let reason = format!("no snapshot can be begun: {error}");
            shared.durability.backup().fail(&reason);
            return Err(refused(reason));
        }
    }
    reply.ok();
    Ok(())
}

fn seal(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    const NOT_READY: &str = "No backup ready to seal (must be in the incrementing state)";
    let shared = Arc::clone(&context.executor.shared);
    let durability = &shared.durability;
    {
        let mut backup = durability.backup();
        if backup.state() != BackupState::Incrementing || backup.is_being_sealed {
            return Err(refused(NOT_READY.to_owned()));
        }
        backup.is_being_sealed = true;
    }
    let (done, sealed) = channel();
    let closed = alone(context, |_| {
        // All acknowledged changes are before the boundary; the log writes nothing behind it until it has sealed the backup.
        durability.ring.set_boundary();
        let database = shared.replication.stream_database();
        durability.boundary_database.store(database, std::sync::atomic::Ordering::SeqCst);
        durability.order(LogOrder::SealBackup { done });
    });
    if let Err(error) = closed {
        durability.backup().is_being_sealed = false;
        return Err(error);
    }
    let wait = |_: &_| sealed.recv().unwrap_or_else(|_| Err("the server is ending".to_owned()));
    context.outside_gate(wait).unwrap_or_else(|| Err(NOT_READY.to_owned())).map_err(refused)?;
    reply.ok();
    Ok(())
}

fn abort(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let durability = &context.shared.durability;
    let mut backup = durability.backup();
    if !backup.is_active() || backup.is_being_sealed {
        return Err(CommandError::text("ERR No backup in progress"));
    }
    backup.fail("aborted by user");
    if backup.owns_log {
        durability.order(LogOrder::EndLogOfBackup);
    }
    reply.ok();
    Ok(())
}

fn clean_up(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.shared.durability.backup().clean_up().map_err(refused)?;
    reply.ok();
    Ok(())
}

fn list(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let backup = context.shared.durability.backup();
    reply.array(backup.files().len());
    for path in backup.files() {
        reply.bulk(path.as_os_str().as_encoded_bytes());
    }
    Ok(())
}

fn status(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let durability = &context.shared.durability;
    let is_writing = durability.rewriting().current.is_some();
    let backup = durability.backup();
    let (started_s, sealed_s) = backup.times_s();
    reply.map(4);
    reply.bulk(b"state");
    reply.bulk(match backup.state() {
        BackupState::Idle => b"idle",
        BackupState::Basing if is_writing => b"snapshotting",
        BackupState::Basing => b"pending",
        BackupState::Incrementing => b"incrementing",
        BackupState::Sealed => b"sealed",
        BackupState::Failed => b"failed",
    });
    reply.bulk(b"error");
    reply.bulk(backup.error().as_bytes());
    reply.bulk(b"start_time");
    reply.integer(started_s as i64);
    reply.bulk(b"end_time");
    reply.integer(sealed_s as i64);
    Ok(())
}
