//! Access control: the users of the server, their changes, and the log of denials.
//!
//! ```text
//! ACL SETUSER ─▶ Users (mutex) ─▶ version + 1 ──▶ a session's next window, or its next command of the server:
//!                                                  version differs? look the user up again : go on
//! ```
//!
//! A session holds its user, which never changes; a change of the list makes the version grow, which each window of
//! commands looks at once. So a command that arrives after the reply to a change is judged by it.
//!
//! Rules, decisions and texts of rules are the crate `dunlin-acl`'s; here is what needs sockets, files and clients.

mod absent;
mod errors;
mod failures;
mod request;

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::*},
    },
};

use dunlin_acl::{
    AclLog, CommandRow, Commands, DEFAULT_USER, Denied, LogEntry, PasswordHash, Reason, SetUserError, User,
    UserDefaults, Users, file, is_user_name,
};
use dunlin_engine::command::{CommandTable, describe::CATEGORIES};

pub(crate) use self::{
    errors::{denial_error, error_in},
    failures::Failures,
    request::AclRequest,
};
use crate::config::{Config, PubsubDefault};

/// The users of a server, and what it notes about access.
pub(crate) struct Access {
    /// Commands, categories and databases that rules can name.
    pub(crate) commands: Commands,
    users: Mutex<Users>,
    /// Grows with every change of the users, after the change.
    version: AtomicU64,
    /// Whether the default user is on and needs no password: clients are let in without saying who they are.
    is_open: AtomicBool,
    log: Mutex<AclLog>,
    /// Denials by [`Reason`], since the start or the last reset.
    denied: [AtomicU64; 6],
    /// Failed authentications by address.
    pub(crate) failures: Failures,
    /// Called when clients begin or cease to be let in without saying who they are.
    on_opened: OnceLock<OnOpened>,
}

/// See [`Access::on_opened`].
type OnOpened = Box<dyn Fn() + Send + Sync>;

impl std::fmt::Debug for Access {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Access").finish_non_exhaustive()
    }
}

/// The consequences of a user's change for clients.
pub(crate) struct Change {
    pub(crate) before: Option<Arc<User>>,
    pub(crate) after: Arc<User>,
}

impl Access {
    /// The default user alone, as `requirepass` has it.
    pub(crate) fn new(table: &CommandTable, config: &Config) -> Self {
        let rows: Vec<_> =
            table.entries().iter().map(|entry| (entry.full_name(), entry.categories())).collect();
        let named = table.entries().iter().zip(&rows).map(|(entry, (name, categories))| CommandRow {
            name,
            categories,
            subcommands: entry.subcommands.clone(),
        });
        let commands = Commands::new(CATEGORIES, named).with_absent(absent::COMMANDS);
        let users = Users::new(&commands);
        let access = Self {
            commands,
            users: Mutex::new(users),
            version: AtomicU64::new(1),
            is_open: AtomicBool::new(true),
            log: Mutex::default(),
            denied: Default::default(),
            failures: Failures::default(),
            on_opened: OnceLock::new(),
        };
        access.require_password(config.requirepass.bytes());
        access
    }

    /// The version of the list of users.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Makes all sessions look at their users, and workers at the configuration, before the next command.
    pub(crate) fn touch(&self) {
        self.version.fetch_add(1, Release);
    }

    /// Whether clients are let in without saying who they are.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// The user of that name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users().get(name).cloned()
    }

    /// The user that clients are before they say who they are.
    pub(crate) fn default_user(&self) -> Arc<User> {
        Arc::clone(self.users().default_user())
    }

    /// A session's user as it is now; `None` if it was removed.
    pub(crate) fn newest(&self, user: &User) -> Option<Arc<User>> {
        self.find(user.name()).filter(|newest| newest.is_same(user))
    }

    /// All users, by name.
    pub(crate) fn list(&self) -> Vec<Arc<User>> {
        self.users().iter().cloned().collect()
    }

    /// `ACL SETUSER`.
    pub(crate) fn set(&self, name: &[u8], rules: &[&[u8]], config: &Config) -> Result<Change, SetUserError> {
        let mut users = self.users();
        let (before, after) = users.set(name, rules, defaults(config), &self.commands)?;
        self.publish(&users);
        Ok(Change { before, after })
    }

    /// `ACL DELUSER`: the names of users that were there.
    pub(crate) fn remove<'n>(&self, names: &[&'n [u8]]) -> Vec<&'n [u8]> {
        let mut users = self.users();
        let removed = names.iter().copied().filter(|name| users.remove(name)).collect();
        self.publish(&users);
        removed
    }

    /// Gives the default user this password, in place of its own; every password does if this one is empty.
    pub(crate) fn require_password(&self, password: &[u8]) {
        let passwords = (!password.is_empty()).then(|| vec![PasswordHash::of(password)]);
        let mut users = self.users();
        let changed = User::clone(users.default_user()).with_passwords(passwords);
        users.put(changed);
        self.publish(&users);
    }

    /// Takes the users of an ACL file over: all of them, or the text of its faults. The users before and after.
    pub(crate) fn load(&self, path: &Path, config: &Config) -> Result<Vec<Change>, Vec<u8>> {
        Ok(self.replace(self.read(path, config)?, config))
    }

    /// The users of an ACL file, or the text of its faults.
    fn read(&self, path: &Path, config: &Config) -> Result<Vec<User>, Vec<u8>> {
        let shown = path.display().to_string();
        let text = std::fs::read(path).map_err(|error| {
            let reason = crate::config::describe(&error);
            format!("Error loading ACLs, opening file '{shown}': {reason}").into_bytes()
        })?;
        file::parse(&text, defaults(config), &self.commands)
            .map_err(|errors| file::describe_errors(&shown, &errors))
    }

    /// The lines of all users that [`Access::load`] would put in place.
    pub(crate) fn lines_in(&self, path: &Path, config: &Config) -> Result<Vec<Vec<u8>>, Vec<u8>> {
        let loaded = self.read(path, config)?;
        let mut users = Users::new(&self.commands);
        replace(&mut users, loaded, config, &self.commands);
        Ok(lines(&users))
    }

    /// A list of users of its own, on which a change can be tried: of these lines, or a copy of the list in force.
    pub(crate) fn draft(&self, lines: Option<&[&[u8]]>, config: &Config) -> Result<Draft<'_>, String> {
        let users = match lines {
            None => {
                let mut users = Users::new(&self.commands);
                users.replace(self.list().iter().map(|user| User::clone(user)).collect(), &self.commands);
                users
            }
            Some(lines) => {
                let mut users = Users::new(&self.commands);
                users.replace(self.parse(lines, config)?, &self.commands);
                users
            }
        };
        Ok(Draft { users, access: self })
    }

    fn parse(&self, lines: &[&[u8]], config: &Config) -> Result<Vec<User>, String> {
        file::parse(&lines.join(&b'\n'), defaults(config), &self.commands).map_err(|errors| {
            String::from_utf8_lossy(&file::describe_errors("the list of users", &errors)).into_owned()
        })
    }

    /// Puts the users of these lines in the place of all: all of them, or none and the reason. The users before, and those
    /// before and after.
    pub(crate) fn replace_all(
        &self,
        lines: &[&[u8]],
        config: &Config,
    ) -> Result<(Vec<Arc<User>>, Vec<Change>), String> {
        let users = self.parse(lines, config)?;
        let before = self.list();
        Ok((before, self.replace(users, config)))
    }

    fn replace(&self, loaded: Vec<User>, config: &Config) -> Vec<Change> {
        let mut users = self.users();
        let before: Vec<Arc<User>> = users.iter().cloned().collect();
        replace(&mut users, loaded, config, &self.commands);
        self.publish(&users);
        let changed = |after: &Arc<User>| Change {
            before: before.iter().find(|user| user.is_same(after)).cloned(),
            after: Arc::clone(after),
        };
        users.iter().map(changed).collect()
    }

    /// Writes all users into an ACL file: beside the old one first, so that a failure leaves that as it was.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let text = file::render(&self.users());
        crate::config::replace_file(path, &text)
    }

    /// Returns the user of this name, if it accepts the password.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.find(name);
        if user.is_none() {
            // A name that is no user's takes as long as a wrong password.
            std::hint::black_box(PasswordHash::of(std::hint::black_box(password)));
        }
        user.filter(|user| user.accepts(password))
    }

    /// Counts a denial and notes it in the log.
    #[cold]
    pub(crate) fn note_denied(&self, denied: Denied<'_>, config: &Config) {
        self.denied[denied.reason as usize].fetch_add(1, Relaxed);
        self.log().note(denied, config.acllog_max_len as usize);
    }

    /// How many requests were denied for a reason.
    pub(crate) fn denied(&self, reason: Reason) -> u64 {
        self.denied[reason as usize].load(Relaxed)
    }

    /// The newest entries of the log.
    pub(crate) fn log_entries(&self, count: usize) -> Vec<LogEntry> {
        self.log().iter().take(count).cloned().collect()
    }

    /// `ACL LOG RESET`.
    pub(crate) fn reset_log(&self) {
        self.log().reset();
    }

    /// Follows a change of `acllog-max-len`.
    pub(crate) fn trim_log(&self, entries_max: usize) {
        self.log().trim(entries_max);
    }

    /// Sets a function to call when clients begin or cease to be let in without saying who they are.
    pub(crate) fn on_opened(&self, call: OnOpened) {
        assert!(self.on_opened.set(call).is_ok(), "set once");
    }

    /// The users that the configuration gives, by its ACL file or its `user` lines, are taken over. The error is a line
    /// for the operator.
    pub(crate) fn configure(&self, config: &Config) -> Result<(), String> {
        if config.aclfile.as_os_str().is_empty() {
            let users = self.users_of(config)?;
            self.replace(users, config);
            return Ok(());
        }
        if let Some(line) = config.users.first() {
            return Err(format!(
                "{}: users cannot be defined both in the configuration and in aclfile {}: remove one of the two",
                line.origin,
                config.aclfile.display()
            ));
        }
        self.load(&config.aclfile, config)
            .map(drop)
            .map_err(|text| String::from_utf8_lossy(&text).into_owned())
    }

    /// The users of the `user` lines of a configuration.
    fn users_of(&self, config: &Config) -> Result<Vec<User>, String> {
        let mut users: Vec<User> = Vec::new();
        for line in &config.users {
            let fail =
                |reason: &str| Err(format!("{}: user {}: {reason}", line.origin, line.name.escape_ascii()));
            if !is_user_name(&line.name) {
                return fail("a name has no blanks");
            }
            if users.iter().any(|user| user.name() == line.name) {
                return fail("a user can only be defined once");
            }
            let rules: Vec<&[u8]> = line.rules.iter().map(Vec::as_slice).collect();
            let defaults = defaults(config);
            match User::new(&line.name, defaults, &self.commands).with_rules(&rules, defaults, &self.commands)
            {
                Ok(user) => users.push(user),
                Err(SetUserError::Unmatched { position, .. }) => {
                    return fail(&format!("the parenthesis of rule {} is never closed", position + 1));
                }
                // The rule itself may be a password whose '>' was forgotten.
                Err(SetUserError::Rule { position, error, .. }) => {
                    return fail(&format!("rule {}: {error}", position + 1));
                }
            }
        }
        Ok(users)
    }

    /// The users for `user` lines, name first, unless they stand in an ACL file.
    pub(crate) fn lines(&self, config: &Config) -> Vec<Vec<Vec<u8>>> {
        if !config.aclfile.as_os_str().is_empty() {
            return Vec::new();
        }
        // No rule has a blank: those of a selector are put together again.
        let rules = |user: &Arc<User>| -> Vec<Vec<u8>> {
            user.describe().split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect()
        };
        self.list().iter().map(|user| [vec![user.name().to_vec()], rules(user)].concat()).collect()
    }

    /// Whether a configuration gives exactly the users that there are.
    pub(crate) fn has_users_of(&self, config: &Config) -> bool {
        if !config.aclfile.as_os_str().is_empty() {
            return config.users.is_empty();
        }
        let Ok(users) = self.users_of(config) else { return false };
        let mut configured = Users::new(&self.commands);
        replace(&mut configured, users, config, &self.commands);
        lines(&configured) == lines(&self.users())
    }

    /// Lets others see a change, while the list is locked.
    fn publish(&self, users: &Users) {
        let default = users.default_user();
        let is_open = default.is_on() && default.needs_no_password();
        let was_open = self.is_open.swap(is_open, Relaxed);
        self.version.fetch_add(1, Release);
        if was_open != is_open
            && let Some(call) = self.on_opened.get()
        {
            call();
        }
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        // Every change is one call that completes or does nothing.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, AclLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A list of users that is not in force.
pub(crate) struct Draft<'a> {
    users: Users,
    access: &'a Access,
}

impl Draft<'_> {
    /// `ACL SETUSER`.
    pub(crate) fn set(&mut self, name: &[u8], rules: &[&[u8]], config: &Config) -> Result<(), SetUserError> {
        self.users.set(name, rules, defaults(config), &self.access.commands).map(drop)
    }

    /// `ACL DELUSER`: whether it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        self.users.remove(name)
    }

    /// The lines of all users.
    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        lines(&self.users)
    }
}

/// All users as an ACL file has them.
fn lines(users: &Users) -> Vec<Vec<u8>> {
    users.iter().map(|user| user.line()).collect()
}

/// Puts other users in the place of all. The default user, if it is not among them, has the password of `requirepass`.
fn replace(users: &mut Users, others: Vec<User>, config: &Config, commands: &Commands) {
    let has_default = others.iter().any(|user| user.name() == DEFAULT_USER);
    users.replace(others, commands);
    let password = config.requirepass.bytes();
    if !has_default && !password.is_empty() {
        let changed =
            User::clone(users.default_user()).with_passwords(Some(vec![PasswordHash::of(password)]));
        users.put(changed);
    }
}

/// The rights of new users.
pub(crate) fn defaults(config: &Config) -> UserDefaults {
    UserDefaults { all_channels: config.acl_pubsub_default == PubsubDefault::AllChannels }
}
