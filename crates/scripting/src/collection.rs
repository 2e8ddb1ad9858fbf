//! Collection of a machine's garbage between calls, in small steps, and the part of its heap that counts as data.
//!
//! ```text
//! used      all that Lua has allocated                       0 ──── live ── limited ───────────── used
//! live      what survived the last whole cycle                      │ ALLOWANCE │     garbage
//! limited   live, and a bounded allowance for what came since
//! ```
//!
//! A script's tables and strings are garbage when it ends, but Lua 5.1 collects only while it allocates: after the last
//! script a heap stays as it is. So a heap that has grown is *due*, and its owner calls [`Heap::collect_step`] between
//! other work. A limit of memory is compared with [`Heap::limited_bytes`]: keys never give way to garbage.
//!
//! Lua does not say when a cycle of its collector has ended. A table with weak values does: its only value goes when the
//! marks of a cycle are complete (Lua's `atomic`), and is put back for the next one.
//!
//! ```text
//! script ends ── mark ┊ sweep ── mark ┊ sweep ── mark ┊        ┊ marks are complete
//!                     1               2               3
//!      what a script's own cycle    all garbage     what 2 has found is freed: the rest is live, without all
//!      had marked is spared         is known        that was allocated since 2
//! ```

use std::cell::{Cell, OnceCell};

use mlua_sys as ffi;

use crate::{
    stack::{Kind, Reference},
    state::LuaState,
};

/// Bytes beyond the live ones that a limit of memory is compared with, and that a heap grows by before collection is due.
const ALLOWANCE_BYTES: usize = 256 << 10;
/// Bytes that a whole cycle must have freed for another one to follow: Lua halves its table of strings once a cycle.
const PROGRESS_BYTES: usize = 64 << 10;
/// Steps of Lua's collector, of some 2,000 units of work each, in one of [`Heap::collect_step`].
const LUA_STEPS: u32 = 8;

/// How far the collection of a heap is.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    /// Bytes that were ever allocated.
    pub(crate) allocated: Cell<u64>,
    /// Bytes of an empty machine.
    empty_bytes: Cell<usize>,
    /// Bytes that survived the last whole cycle, or fewer.
    live_bytes: Cell<usize>,
    progress: Cell<Progress>,
    /// The table with weak values.
    weak: OnceCell<Reference>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Progress {
    #[default]
    Idle,
    /// A script may have begun the cycle.
    Begun,
    /// Marks were complete with `used` bytes in use, after `allocated` bytes had ever been allocated: those of a cycle that a
    /// script may have begun, or of a whole one.
    Marked { is_whole: bool, used: usize, allocated: u64 },
}

impl Collection {
    /// Bytes by which a heap may exceed its live ones before its collection is due.
    fn slack_bytes(&self) -> usize {
        ALLOWANCE_BYTES.max(self.live_bytes.get() / 2)
    }
}

impl LuaState {
    /// The machine is set up: its heap is as small as it gets.
    pub(crate) fn note_empty(&self) {
        let stack = self.stack();
        stack.push_table(1, 0);
        stack.push_table(0, 1);
        stack.push_bytes("v");
        stack.raw_set_field(-2, "__mode");
        stack.set_metatable(-2);
        let collection = &self.machine().collection;
        _ = collection.weak.set(stack.make_reference());
        let used = self.used_bytes();
        collection.empty_bytes.set(used);
        collection.live_bytes.set(used);
    }

    /// Makes collection due if the heap has grown; whether it is due.
    #[inline]
    pub(crate) fn note_growth(&self) -> bool {
        let collection = &self.machine().collection;
        if self.used_bytes() > collection.live_bytes.get() + collection.slack_bytes() {
            self.request_collection();
        }
        self.is_collection_due()
    }

    fn is_collection_due(&self) -> bool {
        !matches!(self.machine().collection.progress.get(), Progress::Idle)
    }

    fn request_collection(&self) {
        if !self.is_collection_due() {
            // A script's own cycle may have come so far since the last collection.
            self.take_marks_complete();
            self.machine().collection.progress.set(Progress::Begun);
        }
    }

    /// Something that was live is no longer referred to: how much is known after the next whole cycle.
    pub(crate) fn note_release(&self) {
        let collection = &self.machine().collection;
        collection.live_bytes.set(collection.empty_bytes.get());
        self.request_collection();
    }

    /// Everything has been collected at once.
    pub(crate) fn note_collected(&self) {
        let collection = &self.machine().collection;
        collection.live_bytes.set(self.used_bytes());
        collection.progress.set(Progress::Idle);
    }

    fn collect_step(&self) {
        for _ in 0..LUA_STEPS {
            // SAFETY: the state is live, and no script is running. Memory is not refused, so that nothing is raised. Lua makes one
            // step where it is asked for a string and the threshold is reached. `LUA_GCSTEP` would make as many as Lua thinks that
            // it owes, thousands after a large allocation.
            unsafe { ffi::lua_gc(self.raw(), ffi::LUA_GCRESTART, 0) };
            self.stack().push_bytes("");
            self.stack().pop(1);
            if self.take_marks_complete() {
                self.end_marking();
                return;
            }
        }
    }

    /// Whether the marks of a cycle have become complete since the last call that returned `true`.
    fn take_marks_complete(&self) -> bool {
        let Some(weak) = self.machine().collection.weak.get() else { return false };
        let stack = self.stack();
        stack.push_reference(weak);
        stack.raw_get_index(-1, 1);
        let is_gone = stack.kind(-1) == Kind::Nil;
        stack.pop(1);
        if is_gone {
            stack.push_table(0, 0);
            stack.raw_set_index(-2, 1);
        }
        stack.pop(1);
        is_gone
    }

    fn end_marking(&self) {
        let (used, collection) = (self.used_bytes(), &self.machine().collection);
        let allocated = collection.allocated.get();
        let (is_whole, before, allocated_before) = match collection.progress.get() {
            Progress::Idle => return,
            Progress::Begun => {
                return collection.progress.set(Progress::Marked { is_whole: false, used, allocated });
            }
            Progress::Marked { is_whole, used, allocated } => (is_whole, used, allocated),
        };
        let next = Progress::Marked { is_whole: true, used, allocated };
        if !is_whole {
            return collection.progress.set(next);
        }
        let since = usize::try_from(allocated - allocated_before).unwrap_or(usize::MAX);
        let survivors = used.saturating_sub(since).max(collection.empty_bytes.get().min(used));
        collection.live_bytes.set(survivors);
        let is_shrinking = before.saturating_sub(used) >= PROGRESS_BYTES.max(before / 16);
        let is_large = used > survivors + collection.slack_bytes();
        if is_shrinking || is_large {
            return collection.progress.set(next);
        }
        collection.progress.set(Progress::Idle);
        self.machine().give_blocks_back();
    }
}

/// The heap of a machine that runs no script at the moment.
#[derive(Clone, Copy)]
pub struct Heap<'m>(pub(crate) &'m LuaState);

impl std::fmt::Debug for Heap<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Heap").field(&self.used_bytes()).finish()
    }
}

impl Heap<'_> {
    /// Bytes that Lua has allocated, with garbage.
    #[inline]
    pub fn used_bytes(self) -> usize {
        self.0.used_bytes()
    }

    /// Bytes that a limit of memory may be compared with: live ones, as of the last whole cycle, and 256 KiB of later ones
    /// at most.
    #[inline]
    pub fn limited_bytes(self) -> usize {
        self.used_bytes().min(self.0.machine().collection.live_bytes.get() + ALLOWANCE_BYTES)
    }

    /// Whether [`Self::collect_step`] is to be called.
    #[inline]
    pub fn is_collection_due(self) -> bool {
        self.0.is_collection_due()
    }

    /// Makes collection due.
    pub fn request_collection(self) {
        self.0.request_collection();
    }

    /// Collects for some tens of microseconds; a large table takes longer, since Lua looks at it as a whole.
    pub fn collect_step(self) {
        if self.is_collection_due() {
            self.0.collect_step();
        }
    }
}

#[cfg(test)]
mod tests {
    use dunlin_resp::ReplyBuffer;

    use crate::{LogLevel, Machine, ScriptHost, Sha};

    struct Host;

    impl ScriptHost for Host {
        fn call(&mut self, _: &[&[u8]], reply: &mut ReplyBuffer) {
            reply.ok();
        }

        fn may_call(&mut self, _: &[&[u8]]) -> Option<bool> {
            Some(true)
        }

        fn log(&mut self, _: LogLevel, _: &[u8]) {}

        fn set_replication(&mut self, _: u8) {}

        fn interrupted(&mut self) -> Option<&'static str> {
            None
        }
    }

    fn run(machine: &mut Machine, script: &str, arguments: &[&[u8]]) {
        let sha = Sha::of(script.as_bytes());
        machine.load(sha, script.as_bytes()).unwrap();
        machine.run(&sha, &[], arguments, &mut Host, &mut ReplyBuffer::default()).unwrap();
    }

    fn collect(machine: &Machine) -> usize {
        while machine.heap().is_collection_due() {
            machine.heap().collect_step();
        }
        machine.heap().used_bytes()
    }

    const GARBAGE: [&str; 4] = [
        "local t = {} for i = 1, 50000 do t[i] = {i} end return #t",
        "local s = {} for i = 1, 50000 do s[i] = 'string ' .. i end return #s",
        "return #cjson.decode('[' .. string.rep('[1,2,3],', 20000) .. '1]')",
        "return #cmsgpack.pack(cjson.decode('[' .. string.rep('\"abc\",', 200000) .. '1]'))",
    ];

    #[test]
    fn garbage_of_scripts_is_collected_and_never_limited() {
        for script in GARBAGE {
            let mut machine = Machine::new(256 << 20);
            let empty = machine.heap().used_bytes();
            assert!(!machine.heap().is_collection_due());
            for round in 0..3 {
                run(&mut machine, script, &[]);
                let (used, limited) = (machine.heap().used_bytes(), machine.heap().limited_bytes());
                assert!(used > 1 << 20 && machine.heap().is_collection_due(), "{script}: {used}");
                assert!(limited <= empty + (300 << 10), "{script}, round {round}: {limited}");
                let left = collect(&machine);
                assert!(left < empty + (64 << 10), "{script}, round {round}: {empty} before, {left} left");
            }
        }
    }

    #[test]
    fn garbage_that_comes_during_a_collection_is_not_taken_for_live() {
        let mut machine = Machine::new(256 << 20);
        let empty = machine.heap().used_bytes();
        for round in 0..40 {
            run(&mut machine, GARBAGE[round % 2], &[]);
            for _ in 0..200 {
                machine.heap().collect_step();
            }
            let limited = machine.heap().limited_bytes();
            assert!(limited <= empty + (400 << 10), "round {round}: {limited}");
        }
        assert!(collect(&machine) < empty + (128 << 10));
    }

    #[test]
    fn arguments_of_a_large_call_do_not_stay() {
        let mut machine = Machine::new(256 << 20);
        let empty = machine.heap().used_bytes();
        run(&mut machine, "return #ARGV[1]", &[&[b'x'; 8 << 20]]);
        assert!(machine.heap().is_collection_due());
        assert!(collect(&machine) < empty + (64 << 10));
    }

    #[test]
    fn compiled_scripts_count_once_they_are_known_to_live() {
        let mut machine = Machine::new(256 << 20);
        let empty = machine.heap().used_bytes();
        for number in 0..6000 {
            let script = format!("local x = {number} return redis.call('get', 'key:' .. x)");
            machine.load(Sha::of(script.as_bytes()), script.as_bytes()).unwrap();
        }
        assert!(machine.heap().is_collection_due(), "a load without a call makes it due");
        let used = collect(&machine);
        assert!(used > empty + (1 << 20), "{used}");
        assert_eq!(machine.heap().limited_bytes(), used);
    }

    #[test]
    fn small_scripts_need_no_collection_of_their_own() {
        let mut machine = Machine::new(256 << 20);
        for number in 0..20_000 {
            let number = number.to_string();
            run(&mut machine, "return {ARGV[1], {ARGV[1], 'x'}}", &[number.as_bytes()]);
            assert!(!machine.heap().is_collection_due(), "{:?}", machine.heap());
        }
    }
}
