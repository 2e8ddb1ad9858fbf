//! The conformance suite, on the model in memory.

mod conformance;

use std::cell::Cell;

use dunlin_cluster::meta::{MemoryMeta, Meta, Revision};

struct Bed {
    meta: MemoryMeta,
    now_ms: Cell<u64>,
}

impl conformance::Testbed for Bed {
    fn meta(&self) -> &dyn Meta {
        &self.meta
    }

    fn compact(&self, revision: Revision) {
        self.meta.store().compact(revision);
    }

    fn pass(&self, ms: u64) {
        self.now_ms.set(self.now_ms.get() + ms);
        self.meta.store().advance(self.now_ms.get());
    }
}

#[test]
fn memory_conforms() {
    conformance::run(&Bed { meta: MemoryMeta::default(), now_ms: Cell::new(0) });
}
