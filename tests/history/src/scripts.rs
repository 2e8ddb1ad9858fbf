//! A scenario of scripts: those that declare their keys and run beside others, and those that do not.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use dunlin_test_support::random::Random;
use dunlin_test_support::resp::Reply;

use crate::client::{Client, Command};
use crate::command;
use crate::scenarios::{CLIENTS, Connect, ensure, keys, together};
use crate::transactions::{execute, number, random_transactions};

/// The balance that every account starts with.
const BALANCE: i64 = 1000;
/// Accounts; few, so that clients meet.
const ACCOUNTS: usize = 6;

/// Moves ARGV[1] between declared accounts.
const DECLARED: &str = "redis.call('decrby', KEYS[1], ARGV[1]) redis.call('incrby', KEYS[2], ARGV[1])";
/// Moves it if the account to give to is not declared.
const HALF_DECLARED: &str =
    "redis.call('decrby', KEYS[1], ARGV[1]) redis.call('incrby', 'key:' .. ARGV[3], ARGV[1])";
/// Moves it between accounts that are not declared, the second of which is known only after a write.
const UNDECLARED: &str = "\
    local left = redis.call('decrby', 'key:' .. ARGV[2], ARGV[1]) \
    local to = left > -1000000 and ARGV[3] or ARGV[2] \
    redis.call('incrby', 'key:' .. to, ARGV[1])";
/// Moves it as a function.
const LIBRARY: &str = "#!lua name=transfers\n\
    redis.register_function('transfer', function(keys, args) \
        redis.call('decrby', keys[1], args[1]) redis.call('incrby', keys[2], args[1]) end)";
const SUM: &str =
    "local sum = 0 for _, key in ipairs(KEYS) do sum = sum + redis.call('get', key) end return sum";
const SUM_UNDECLARED: &str =
    "local sum = 0 for i = 0, ARGV[1] - 1 do sum = sum + redis.call('get', 'key:' .. i) end return sum";

/// Money moves between accounts in scripts, whose keys are declared or not: a reader that adds all accounts up
/// always finds the same sum.
pub fn scripted_transfers(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let accounts = keys(ACCOUNTS);
    let mut client = connect(0)?;
    for account in &accounts {
        client.call(command!["SET", account, BALANCE.to_string()])?;
    }
    client.call(command!["FUNCTION", "LOAD", "REPLACE", LIBRARY])?;
    together(connect, |index, client| {
        let mut random = Random::new(index as u64);
        for round in 0..rounds {
            let from = random.below(ACCOUNTS);
            let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
            let amount = random.below(10).to_string();
            if round % 3 == 0 {
                check_sum(client, &accounts, random.chance(50))?;
            } else {
                transfer(client, &accounts, (from, to), &amount, random.below(4))?;
            }
        }
        Ok(())
    })?;
    check_sum(&mut client, &accounts, true)
}

fn transfer(
    client: &mut Client,
    accounts: &[Vec<u8>],
    (from, to): (usize, usize),
    amount: &str,
    way: usize,
) -> Result<(), String> {
    let (source, target) = (&accounts[from], &accounts[to]);
    if client.is_broken() {
        client.call(command!["DECRBY", source, amount])?;
        client.call(command!["INCRBY", target, amount])?;
        return Ok(());
    }
    let (from, to) = (from.to_string(), to.to_string());
    let reply = client.call(match way {
        0 => command!["EVAL", DECLARED, "2", source, target, amount],
        1 => command!["EVAL", HALF_DECLARED, "1", source, amount, from, to],
        2 => command!["EVAL", UNDECLARED, "0", amount, from, to],
        _ => command!["FCALL", "transfer", "2", source, target, amount],
    })?;
    ensure(!reply.is_error(), || reply.show())
}

fn check_sum(client: &mut Client, accounts: &[Vec<u8>], declared: bool) -> Result<(), String> {
    let sum = if declared {
        let mut sum = command!["EVAL", SUM, accounts.len().to_string()];
        sum.extend(accounts.iter().cloned());
        client.integer(sum)?
    } else {
        client.integer(command!["EVAL", SUM_UNDECLARED, "0", accounts.len().to_string()])?
    };
    ensure(sum == BALANCE * ACCOUNTS as i64, || format!("the accounts add up to {sum}"))
}

/// Increments or reads declared counters, in one way of calling or another. Its proof succeeds.
const TOUCH: &str = "\
    local values = {} \
    for i, key in ipairs(KEYS) do \
        if ARGV[i] == 'INCR' then values[i] = redis.call('incr', key) else values[i] = redis.call('get', key) end \
    end \
    return values";
/// The script above with keys that are not declared.
const TOUCH_UNDECLARED: &str = "\
    local values = {} \
    for i = 1, #ARGV, 2 do values[#values + 1] = redis.call(ARGV[i], ARGV[i + 1]) end \
    return values";
/// The first script as a function.
const TOUCH_LIBRARY: &str = "#!lua name=touching\n\
    redis.register_function('touch', function(keys, args) \
        local values = {} \
        for i, key in ipairs(keys) do \
            if args[i] == 'INCR' then values[i] = redis.call('incr', key) else values[i] = redis.call('get', key) end \
        end \
        return values end)";

/// Random transactions, each as a MULTI, a script whose keys are declared or not, a function, or scripts in a
/// MULTI: one order explains them all.
pub fn serializable(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    connect(0)?.call(command!["FUNCTION", "LOAD", "REPLACE", TOUCH_LIBRARY])?;
    random_transactions(connect, rounds, &|client, random, counters, chosen| {
        let verb = |writes: bool| if writes { "INCR" } else { "GET" };
        let declared = |mut call: Command, chosen: &[(usize, bool)]| {
            call.push(chosen.len().to_string().into_bytes());
            call.extend(chosen.iter().map(|&(key, _)| counters[key].clone()));
            call.extend(chosen.iter().map(|&(_, writes)| verb(writes).into()));
            call
        };
        let way = if client.is_broken() { 0 } else { random.below(5) };
        let replies = match way {
            0 => {
                let commands: Vec<Command> =
                    chosen.iter().map(|&(key, writes)| command![verb(writes), counters[key]]).collect();
                execute(client, &commands)?.ok_or("nothing was watched")?
            }
            1 => elements(&client.call(declared(command!["EVAL", TOUCH], chosen))?)?,
            2 => {
                let mut call = command!["EVAL", TOUCH_UNDECLARED, "0"];
                for &(key, writes) in chosen {
                    call.extend([verb(writes).into(), counters[key].clone()]);
                }
                elements(&client.call(call)?)?
            }
            3 => elements(&client.call(declared(command!["FCALL", "touch"], chosen))?)?,
            _ => {
                let halves = chosen.split_at(chosen.len() / 2);
                let calls = [halves.0, halves.1].map(|half| declared(command!["EVAL", TOUCH], half));
                let replies = execute(client, &calls)?.ok_or("nothing was watched")?;
                replies.iter().map(elements).collect::<Result<Vec<_>, _>>()?.concat()
            }
        };
        replies.iter().map(number).collect::<Result<Vec<_>, _>>().map(Some)
    })
}

fn elements(reply: &Reply) -> Result<Vec<Reply>, String> {
    reply.elements().map(<[Reply]>::to_vec).ok_or_else(|| reply.show())
}

/// Waits a while, writes one key, waits, writes the other.
const SLOW: &str = "\
    for i = 1, ARGV[1] do end redis.call('incr', KEYS[1]) \
    for i = 1, ARGV[2] do end redis.call('incr', KEYS[2])";
/// The script above with keys that are not declared.
const SLOW_UNDECLARED: &str = "\
    for i = 1, ARGV[1] do end redis.call('incr', ARGV[3]) \
    for i = 1, ARGV[2] do end redis.call('incr', ARGV[4])";
const SLOW_LIBRARY: &str = "#!lua name=slow\n\
    redis.register_function('slow', function(keys, args) \
        for i = 1, args[1] do end redis.call('incr', keys[1]) \
        for i = 1, args[2] do end redis.call('incr', keys[2]) end)";
/// Turns of an empty loop before and between the writes: up to some tens of milliseconds, so that others get to
/// know of the script in most runs.
const TURNS_MAX: usize = 4_000_000;
/// Clients that end others' scripts.
const KILLERS: usize = 2;

/// Scripts, functions and their clients are ended at random points. A script has written both of its keys or none.
/// Every one whose reply says that it is done has written, and none whose reply says that it was ended.
pub fn killed(connect: &Connect<'_>, rounds: usize) -> Result<(), String> {
    let (a, b) = (b"key:a".to_vec(), b"key:b".to_vec());
    let ids: Vec<AtomicI64> = (0..CLIENTS).map(|_| AtomicI64::new(0)).collect();
    let working = AtomicUsize::new(CLIENTS - KILLERS);
    let mut client = connect(0)?;
    client.call(command!["MSET", a, "0", b, "0"])?;
    client.call(command!["FUNCTION", "LOAD", "REPLACE", SLOW_LIBRARY])?;
    let counts = together(connect, |index, client| {
        let mut random = Random::new(index as u64 + 7);
        if index < KILLERS {
            let mut ended = 0;
            while working.load(Ordering::Relaxed) > 0 {
                let victim =
                    ids[KILLERS + random.below(CLIENTS - KILLERS)].load(Ordering::Relaxed).to_string();
                let reply = client.call(match random.below(20) {
                    0 => command!["CLIENT", "KILL", "ID", victim],
                    n if n < 12 => command!["SCRIPT", "KILL"],
                    _ => command!["FUNCTION", "KILL"],
                })?;
                ended += i64::from(!reply.is_error());
            }
            return Ok((ended, 0));
        }
        let played = work(connect, client, &ids[index], &mut random, rounds, (&a, &b));
        working.fetch_sub(1, Ordering::Relaxed);
        played
    })?;
    let mut client = connect(0)?;
    let written = client.integer(command!["INCRBY", a, "0"])?;
    ensure(are_equal(&mut client, &a, &b)?, || "a script has written one key of two".into())?;
    let (done, unknown) =
        counts[KILLERS..].iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    ensure((done..=done + unknown).contains(&written), || {
        format!("{written} scripts have written; {done} were told done, of {unknown} nobody knows")
    })
}

/// Runs slow scripts: how many were done, and of how many the client does not know.
fn work(
    connect: &Connect<'_>,
    client: &mut Client,
    id: &AtomicI64,
    random: &mut Random,
    rounds: usize,
    (a, b): (&[u8], &[u8]),
) -> Result<(i64, i64), String> {
    let (mut done, mut unknown) = (0, 0);
    id.store(client.integer(command!["CLIENT", "ID"])?, Ordering::Relaxed);
    for _ in 0..rounds {
        let turns = [(); 2].map(|()| random.below(TURNS_MAX).to_string());
        let outcome = if client.is_broken() {
            client.call(command!["INCR", a]).and_then(|_| client.call(command!["INCR", b]))
        } else {
            client.call(match random.below(3) {
                0 => command!["EVAL", SLOW, "2", a, b, turns[0], turns[1]],
                1 => command!["EVAL", SLOW_UNDECLARED, "0", turns[0], turns[1], a, b],
                _ => command!["FCALL", "slow", "2", a, b, turns[0], turns[1]],
            })
        };
        match outcome {
            Ok(reply) if !reply.is_error() => done += 1,
            Ok(reply) => {
                let is_killed =
                    reply.bytes().is_some_and(|text| text.starts_with(b"ERR Script killed by user"));
                ensure(is_killed, || reply.show())?;
            }
            Err(_) => unknown += 1,
        }
        // Whose connection was closed takes another one, until it lives long enough to look.
        loop {
            match are_equal(client, a, b) {
                Ok(equal) => break ensure(equal, || "a script has written one key of two".into())?,
                Err(_) => *client = connect(0)?,
            }
            id.store(client.integer(command!["CLIENT", "ID"]).unwrap_or(0), Ordering::Relaxed);
        }
    }
    Ok((done, unknown))
}

fn are_equal(client: &mut Client, a: &[u8], b: &[u8]) -> Result<bool, String> {
    let reply = client.call(command!["MGET", a, b])?;
    Ok(matches!(reply.elements(), Some([a, b]) if a.bytes() == b.bytes()))
}
