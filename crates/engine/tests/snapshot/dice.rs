//! Random commands.

use crate::common::{Client, DATABASES};

/// Numbers from a seed (SplitMix64).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }
}

/// Commands in the words of [`Dice::line`].
const LINES: &[&str] = &[
    "SET s:K V",
    "SET s:K V",
    "SET s:K V PX T",
    "SET s:K L",
    "SET s:K KEEPTTL V",
    "GETSET s:K N",
    "APPEND s:K V",
    "APPEND s:K L",
    "SETRANGE s:K N V",
    "SETBIT s:K N 1",
    "SETBIT s:K 3 0",
    "SET s:K N",
    "INCR s:K",
    "INCRBYFLOAT s:K 0.5",
    "GETDEL s:K",
    "MSET s:K V s:K V s:K V",
    "BITOP XOR s:K s:K s:K",
    "PFADD p:K V N",
    "PFMERGE p:K p:K p:K",
    "HSET h:K N V N V",
    "HSET h:1 N V",
    "HDEL h:K N",
    "HINCRBY h:K N 1",
    "HPEXPIRE h:K T FIELDS 2 N N",
    "HPERSIST h:K FIELDS 1 N",
    "HSETEX h:K PX T FIELDS 1 N V",
    "HGETDEL h:K FIELDS 1 N",
    "SADD t:K N V",
    "SADD t:K N",
    "SREM t:K N",
    "SPOP t:K",
    "SMOVE t:K t:K N",
    "SUNIONSTORE t:K t:K t:K",
    "ZADD z:K N V",
    "ZINCRBY z:K N V",
    "ZPOPMIN z:K",
    "ZREMRANGEBYRANK z:K 0 1",
    "ZUNIONSTORE z:K 2 z:K z:K",
    "GEOADD z:K 13.3 38.1 V",
    "RPUSH l:K V N V",
    "LPUSH l:K V",
    "LPOP l:K",
    "LMOVE l:K l:K LEFT RIGHT",
    "LTRIM l:K 1 9",
    "LSET l:K 0 V",
    "LINSERT l:K BEFORE N V",
    "LREM l:K 0 N",
    "XADD x:K * f V",
    "XADD x:K MAXLEN 7 * f V g N",
    "XTRIM x:K MAXLEN 3",
    "XGROUP CREATE x:K g 0 MKSTREAM",
    "XREADGROUP GROUP g c COUNT 2 STREAMS x:K >",
    "EXPIRE G 100",
    "PEXPIRE G T",
    "PEXPIRE G T",
    "PERSIST G",
    "DEL G",
    "UNLINK G G G",
    "RENAME G G",
    "RENAMENX G G",
    "COPY G G REPLACE",
    "COPY G G DB D REPLACE",
    "MOVE G D",
    "SORT l:K ALPHA STORE l:K",
    "GETEX s:K PX T",
    "TOUCH G",
    "GET s:K",
];
const RARE: &[&str] = &["FLUSHDB", "FLUSHALL ASYNC", "SWAPDB 0 D", "SWAPDB 1 D", "FLUSHDB ASYNC"];

impl Dice {
    /// A line with its words filled in: K a name, G a name with a type, N a small number, D a database, T a time to
    /// live, V a value, L a long one.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let name = |dice: &mut Self| format!("{{{}}}{}", dice.roll(3), dice.roll(150));
        let words = line.split(' ').map(|word| match word {
            "G" => {
                let kind = ["s", "h", "t", "z", "l", "x", "p"][self.roll(7) as usize];
                format!("{kind}:{}", name(self))
            }
            "N" => self.roll(12).to_string(),
            "D" => self.roll(DATABASES as u64).to_string(),
            "T" => (1 + self.roll(400)).to_string(),
            "V" => format!("value:{}", self.roll(20)).repeat(1 + self.roll(4) as usize),
            "L" => format!("long:{}", self.roll(20)).repeat(200 + self.roll(400) as usize),
            word => match word.strip_suffix('K') {
                Some(kind) if kind.ends_with(':') => format!("{kind}{}", name(self)),
                _ => word.to_owned(),
            },
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// Runs a random command.
    pub(crate) fn play(&mut self, client: &mut Client<'_>) {
        client.database = self.roll(DATABASES as u64) as usize;
        if self.roll(40) == 0 {
            // A value that is built elsewhere and put in as a whole.
            let (from, to) = (self.line("DUMP G"), self.line("G"));
            let dump = client.run(&from.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            if let Some(start) = dump.windows(2).position(|two| two == b"\r\n").filter(|_| dump[1] != b'-') {
                let dump = &dump[start + 2..dump.len() - 2];
                client.run(&[b"RESTORE", to.as_bytes(), b"0", dump, b"REPLACE"]);
            }
            return;
        }
        let lines = if self.roll(1500) == 0 { RARE } else { LINES };
        let line = lines[self.roll(lines.len() as u64) as usize];
        let line = self.line(line);
        client.say(&line);
    }
}
