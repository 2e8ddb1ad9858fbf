//! Compiled paths, kept by each thread for its next commands.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use dunlin_json::path::Path;

use super::refused;
use crate::command::CommandError;

/// Paths that a thread keeps. All are dropped when there are more.
const PATHS_MAX: usize = 256;
/// Bytes of the longest path that is kept: a path of names takes a few times its text.
const KEPT_BYTES_MAX: usize = 256;

thread_local! {
    static PATHS: RefCell<HashMap<Box<[u8]>, Rc<Path>>> = RefCell::default();
}

/// Compiles a path, or finds it.
///
/// # Errors
/// If the text is no path.
pub(super) fn compiled(text: &[u8]) -> Result<Rc<Path>, CommandError> {
    PATHS.with_borrow_mut(|paths| {
        if let Some(path) = paths.get(text) {
            return Ok(Rc::clone(path));
        }
        let path = Rc::new(Path::compile(text).map_err(refused)?);
        if text.len() <= KEPT_BYTES_MAX {
            if paths.len() >= PATHS_MAX {
                paths.clear();
            }
            paths.insert(text.into(), Rc::clone(&path));
        }
        Ok(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept_in_bounds() {
        let first = compiled(b"$.a").unwrap();
        assert!(Rc::ptr_eq(&first, &compiled(b"$.a").unwrap()));
        for number in 0..PATHS_MAX + 10 {
            compiled(format!("$.a[{number}]").as_bytes()).unwrap();
        }
        let long = format!("$.{}", "a".repeat(KEPT_BYTES_MAX));
        assert!(!Rc::ptr_eq(&compiled(long.as_bytes()).unwrap(), &compiled(long.as_bytes()).unwrap()));
        assert!(PATHS.with_borrow(HashMap::len) <= PATHS_MAX);
        assert!(compiled(b"$.[").is_err());
    }
}
