//! [`User`]: a name, passwords and permissions.

use crate::{
    Commands, Denial, KeyAccess, PasswordHash, Request, RuleError, Selector, SetUserError,
    rule::{SelectorRule, UserRule, join_selectors},
};

/// The user of clients that have not authenticated.
pub const DEFAULT_USER: &[u8] = b"default";

/// The last rule about payloads of `RESTORE`; none for a new user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payloads {
    Unsaid,
    Sanitized,
    Unsanitized,
}

/// The rights of a new user that the configuration decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserDefaults {
    /// All channels, until rules say otherwise (`acl-pubsub-default`).
    pub all_channels: bool,
}

/// A user. Immutable: a change makes another one.
#[derive(Debug, Clone)]
pub struct User {
    name: Box<[u8]>,
    /// A number of this user and of its earlier versions, and of no other user.
    pub(crate) identity: u64,
    is_on: bool,
    /// Any password does.
    no_password: bool,
    payloads: Payloads,
    passwords: Vec<PasswordHash>,
    root: Selector,
    selectors: Vec<Selector>,
}

impl User {
    /// A new user without any permission.
    pub fn new(name: &[u8], defaults: UserDefaults, commands: &Commands) -> Self {
        let mut user = Self {
            name: name.into(),
            identity: 0,
            is_on: false,
            no_password: false,
            payloads: Payloads::Unsaid,
            passwords: Vec::new(),
            root: Selector::new(commands),
            selectors: Vec::new(),
        };
        if defaults.all_channels {
            user.set_root(SelectorRule::AllChannels, commands);
        }
        user
    }

    /// The default user as it is until rules say otherwise: without a password, with all rights.
    pub fn new_default(commands: &Commands) -> Self {
        let mut user = Self::new(DEFAULT_USER, UserDefaults { all_channels: true }, commands);
        user.set_root(SelectorRule::AllCommands, commands);
        user.set_root(SelectorRule::AllKeys, commands);
        (user.is_on, user.no_password) = (true, true);
        user
    }

    /// The user with rules applied, in order; all of them or none.
    pub fn with_rules(
        &self,
        rules: &[&[u8]],
        defaults: UserDefaults,
        commands: &Commands,
    ) -> Result<Self, SetUserError> {
        let mut user = self.clone();
        for (position, word) in join_selectors(rules)? {
            user.apply(&word, defaults, commands).map_err(|error| SetUserError::Rule {
                word: word.to_vec(),
                position,
                error,
            })?;
        }
        Ok(user)
    }

    fn apply(&mut self, word: &[u8], defaults: UserDefaults, commands: &Commands) -> Result<(), RuleError> {
        if word.is_empty() {
            return Ok(());
        }
        match UserRule::parse(word, commands)? {
            UserRule::On => self.is_on = true,
            UserRule::Off => self.is_on = false,
            UserRule::SanitizePayload => self.payloads = Payloads::Sanitized,
            UserRule::SkipSanitizePayload => self.payloads = Payloads::Unsanitized,
            UserRule::NoPassword => self.set_passwords(None),
            UserRule::ResetPasswords => self.set_passwords(Some(Vec::new())),
            UserRule::AddPassword(hash) => {
                if !self.passwords.contains(&hash) {
                    self.passwords.push(hash);
                }
                self.no_password = false;
            }
            UserRule::RemovePassword(hash) => {
                let at = self.passwords.iter().position(|known| *known == hash);
                self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
            }
            UserRule::ClearSelectors => self.selectors.clear(),
            UserRule::Reset => {
                let blank = Self::new(&self.name, defaults, commands);
                *self = Self { identity: self.identity, payloads: Payloads::Sanitized, ..blank };
            }
            UserRule::AddSelector(rules) => self.selectors.push(Selector::parse(rules, commands)?),
            UserRule::Root(rule) => self.root.apply(rule, commands)?,
        }
        Ok(())
    }

    fn set_root(&mut self, rule: SelectorRule<'_>, commands: &Commands) {
        self.root.apply(rule, commands).expect("no rule without a pattern fails");
    }

    /// The user with these passwords in place of its own; without any, every password does.
    #[must_use]
    pub fn with_passwords(mut self, passwords: Option<Vec<PasswordHash>>) -> Self {
        self.set_passwords(passwords);
        self
    }

    fn set_passwords(&mut self, passwords: Option<Vec<PasswordHash>>) {
        self.no_password = passwords.is_none();
        self.passwords = passwords.unwrap_or_default();
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether it is the same user, before or after changes.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity
    }

    /// Whether one can be this user.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether every password does.
    pub fn needs_no_password(&self) -> bool {
        self.no_password
    }

    /// Whether a client is let in as this user with a password. The time depends on the length of the password offered
    /// and on the number of the user's.
    pub fn accepts(&self, password: &[u8]) -> bool {
        self.is_on && (self.no_password || PasswordHash::of(password).is_among(&self.passwords))
    }

    /// Whether there is nothing that it may not do: then no decision has to be asked for.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.selectors().any(Selector::is_unrestricted)
    }

    /// The root selector, then the others.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether the user may run a request: one of its selectors has to allow all of it.
    #[inline]
    pub fn decide<R: Request>(&self, request: &R) -> Result<(), Denial> {
        let denial = match self.root.decide(request) {
            Ok(()) => return Ok(()),
            Err(denial) => denial,
        };
        self.decide_by_others(request, denial)
    }

    fn decide_by_others<R: Request>(&self, request: &R, mut denial: Denial) -> Result<(), Denial> {
        for selector in &self.selectors {
            match selector.decide(request) {
                Ok(()) => return Ok(()),
                Err(other) => denial = denial.or_later(other),
            }
        }
        Err(denial)
    }

    /// Whether the user may run a request and use keys of any name in this way with it (`SORT … BY`).
    pub fn may_use_all_keys<R: Request>(&self, request: &R, access: KeyAccess) -> bool {
        self.selectors().any(|selector| selector.covers_all_keys(access) && selector.decide(request).is_ok())
    }

    /// Whether the user may listen to a channel, or to those of a pattern.
    pub fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.selectors().any(|selector| selector.may_listen(channel, is_pattern))
    }

    /// Whether the user may listen to everything that `before` may, as far as the patterns say so: then none of its
    /// clients has to be looked at.
    pub fn keeps_channels_of(&self, before: &Self) -> bool {
        let mut known: Vec<&[u8]> = Vec::new();
        for selector in self.selectors() {
            match selector.channel_patterns() {
                None => return true,
                Some(patterns) => known.extend(patterns),
            }
        }
        before.selectors().all(|selector| {
            selector.channel_patterns().is_some_and(|mut patterns| patterns.all(|text| known.contains(&text)))
        })
    }

    /// The flags as `ACL GETUSER` shows them.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.no_password.then_some("nopass"));
        flags.extend(match self.payloads {
            Payloads::Unsaid => None,
            Payloads::Sanitized => Some("sanitize-payload"),
            Payloads::Unsanitized => Some("skip-sanitize-payload"),
        });
        flags
    }

    /// The hashes of the passwords.
    pub fn passwords(&self) -> &[PasswordHash] {
        &self.passwords
    }

    /// Rules that make the same user: a line of `ACL LIST` behind `user name `.
    pub fn describe(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
        words.push(self.root.describe());
        let in_parentheses = |selector: &Selector| [b"(", &selector.describe()[..], b")"].concat();
        words.extend(self.selectors.iter().map(in_parentheses));
        words.join(&b' ')
    }

    /// The whole line of the user in an ACL file or a configuration, without its end.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", &*self.name, b" ", &self.describe()].concat()
    }
}
