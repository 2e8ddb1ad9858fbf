
use std::{sync::{Arc, Condvar, Mutex}, thread::JoinHandle, time::Duration};
#[derive(Default)]
struct State { asked: bool, closed: bool }
#[derive(Default)]
struct Shared { state: Mutex<State>, asked: Condvar, idle: Condvar }
pub(super) struct IdleGate { shared: Arc<Shared>, thread: Option<JoinHandle<()>> }
impl IdleGate {
    pub(super) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                let param = libc::sched_param { sched_priority: 0 };
                unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) };
                let mut state = shared.state.lock().unwrap();
                while !state.closed {
                    if state.asked { state.asked = false; shared.idle.notify_one(); }
                    state = shared.asked.wait(state).unwrap();
                }
            }
        };
        let thread = std::thread::Builder::new().name("idle-gate".to_owned()).spawn(run).unwrap();
        Self { shared, thread: Some(thread) }
    }
    pub(super) fn pass(&self, max: Duration) {
        let mut state = self.shared.state.lock().unwrap();
        state.asked = true;
        self.shared.asked.notify_one();
        drop(self.shared.idle.wait_timeout_while(state, max, |state| state.asked).unwrap());
    }
}
impl Drop for IdleGate {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap().closed = true;
        self.shared.asked.notify_one();
        self.thread.take().unwrap().join().unwrap();
    }
}
