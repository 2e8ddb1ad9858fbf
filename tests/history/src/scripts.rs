//! A story of scripts: those that declare their keys and run beside others, and those that do not.

use dunlin_test_support::random::Random;

use crate::client::Client;
use crate::command;
use crate::scenarios::{Connect, ensure, keys, together};

/// What every account starts with.
const BALANCE: i64 = 1000;
/// Accounts; few, so that clients meet.
const ACCOUNTS: usize = 6;

/// Moves ARGV[1] between declared accounts.
const DECLARED: &str = "redis.call('decrby', KEYS[1], ARGV[1]) redis.call('incrby', KEYS[2], ARGV[1])";
/// Moves it where the account to give to is not declared.
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

/// Money moves between accounts in scripts, whose keys are declared or not: whoever adds all accounts up
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
