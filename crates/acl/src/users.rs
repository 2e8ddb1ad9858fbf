//! [`Users`]: the list of users by name.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Commands, DEFAULT_USER, SetUserError, User, UserDefaults};

/// Users by name. The default user is always among them.
#[derive(Debug)]
pub struct Users {
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    /// Identities that were given out.
    identities: u64,
}

impl Users {
    /// The default user alone, with all rights.
    pub fn new(commands: &Commands) -> Self {
        let mut users = Self { by_name: BTreeMap::new(), identities: 0 };
        users.put(User::new_default(commands));
        users
    }

    /// The user of that name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// The default user.
    pub fn default_user(&self) -> &Arc<User> {
        self.get(DEFAULT_USER).expect("it is never removed")
    }

    /// All users, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Applies rules to the user of that name, or to a new one; all of them or none. The user before and after.
    pub fn set(
        &mut self,
        name: &[u8],
        rules: &[&[u8]],
        defaults: UserDefaults,
        commands: &Commands,
    ) -> Result<(Option<Arc<User>>, Arc<User>), SetUserError> {
        let before = self.get(name).cloned();
        let user = match &before {
            Some(user) => user.with_rules(rules, defaults, commands)?,
            None => User::new(name, defaults, commands).with_rules(rules, defaults, commands)?,
        };
        Ok((before, self.put(user)))
    }

    /// Puts a user in the place of the one of its name, whose identity it takes over.
    pub fn put(&mut self, mut user: User) -> Arc<User> {
        user.identity = match self.get(user.name()) {
            Some(before) => before.identity,
            None => {
                self.identities += 1;
                self.identities
            }
        };
        let user = Arc::new(user);
        self.by_name.insert(user.name().into(), Arc::clone(&user));
        user
    }

    /// Removes the user of that name, unless it is the default user. Returns whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT_USER && self.by_name.remove(name).is_some()
    }

    /// Puts others in the place of all users; the default user, if it is not among them, is as a new one.
    pub fn replace(&mut self, users: Vec<User>, commands: &Commands) {
        let is_default = |user: &User| user.name() == DEFAULT_USER;
        let default = (!users.iter().any(is_default)).then(|| User::new_default(commands));
        let users: Vec<User> = users.into_iter().chain(default).collect();
        let stays = |name: &[u8]| users.iter().any(|user| user.name() == name);
        let gone: Vec<Box<[u8]>> = self.by_name.keys().filter(|name| !stays(name)).cloned().collect();
        for name in gone {
            self.by_name.remove(&name);
        }
        for user in users {
            self.put(user);
        }
    }
}
