//! JSON documents as values of keys; the crate `dunlin-json` has their form (decision 0099).
//!
//! ```text
//! packed    the bytes of the document's only block, in its key's cell       see `value::packed`
//! held      ● ──▶ document ──▶ block, or a tree of blocks │ its bytes on the heap
//! ```
//!
//! A clone of a held document shares its blocks; a change beside it copies the lists on its way and one block. So a view is
//! taken in no time, and there is no incremental copy: a snapshot of a large document holds a clone.

mod stored;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use dunlin_json::{Document, ValueRef, parse};

use super::{Collection, CollectionRef, Object, ObjectRef, PACKED_BYTES_MAX, Packed, PackedForm, Resources};

/// A JSON document.
#[derive(Debug)]
pub struct Json {
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// A block in the cell of a key, for readers: see [`Json::lent`].
    Lent(&'static [u8]),
    Held(Box<Held>),
}

#[derive(Debug, Clone)]
struct Held {
    document: Document,
    /// [`Document::heap_bytes`], which takes a walk over the blocks.
    bytes: usize,
}

impl From<Document> for Json {
    fn from(document: Document) -> Self {
        let bytes = document.heap_bytes();
        Self { form: Form::Held(Box::new(Held { document, bytes })) }
    }
}

impl Clone for Json {
    fn clone(&self) -> Self {
        match &self.form {
            Form::Lent(block) => Self::in_block(block),
            Form::Held(held) => Self { form: Form::Held(held.clone()) },
        }
    }
}

impl Collection for Json {
    type Ref<'a> = CollectionRef<'a, Self>;

    /// The value null: it is to be replaced.
    fn new(_: &Arc<Resources>) -> Self {
        Self::from(parse(b"null").expect("it is a JSON text"))
    }

    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        match object {
            Object::Json(json) => Some(json),
            _ => None,
        }
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        match object {
            Object::Json(json) => Some(json),
            _ => None,
        }
    }

    fn of_ref(object: ObjectRef<'_>) -> Option<CollectionRef<'_, Self>> {
        CollectionRef::of(object)
    }

    fn into_object(self) -> Object {
        Object::Json(self)
    }

    /// Never: an empty object is a document like any other.
    fn is_empty(&self) -> bool {
        false
    }

    #[inline]
    fn outside_bytes(&self) -> usize {
        match &self.form {
            Form::Lent(block) => block.len(),
            Form::Held(held) => size_of::<Held>() + held.bytes,
        }
    }

    #[inline]
    fn packed(&self) -> Option<Packed<'_>> {
        let block = match &self.form {
            Form::Lent(block) => Some(*block),
            Form::Held(held) => held.document.as_block(),
        };
        block
            .filter(|block| block.len() <= PACKED_BYTES_MAX)
            .and_then(|block| Packed::new(PackedForm::Json, block))
    }
}

impl Json {
    /// A document of a block, which is copied.
    #[inline]
    pub(super) fn in_block(block: &[u8]) -> Self {
        Self::from(Document::from_block(block.to_vec()))
    }

    /// A document to be read where its block stands.
    ///
    /// # Safety
    /// The block must outlive the result and all references that it gives out.
    #[inline]
    pub(super) unsafe fn lent(block: &[u8]) -> Self {
        // SAFETY: the caller vouches that nothing of it lives longer than the block.
        let block: &'static [u8] = unsafe { &*std::ptr::from_ref(block) };
        Self { form: Form::Lent(block) }
    }

    /// The value at the root.
    #[inline]
    pub fn root(&self) -> ValueRef<'_> {
        match &self.form {
            Form::Lent(block) => ValueRef::of_block(block),
            Form::Held(held) => held.document.root(),
        }
    }

    /// The document: a clone that shares everything if it is held, a copy of its block if it stands in a cell.
    pub fn document(&self) -> Document {
        match &self.form {
            Form::Lent(block) => Document::from_block(block.to_vec()),
            Form::Held(held) => held.document.clone(),
        }
    }

    /// About how many bytes a pass over it reads. O(1).
    #[inline]
    pub fn bytes(&self) -> usize {
        self.outside_bytes()
    }

    /// Changes the document. O(edit), and O(blocks) to measure what has become of it.
    pub fn edit<R>(&mut self, edit: impl FnOnce(&mut Document) -> R) -> R {
        if let Form::Lent(block) = self.form {
            *self = Self::in_block(block);
        }
        let Form::Held(held) = &mut self.form else { unreachable!("it is held now") };
        let result = edit(&mut held.document);
        held.bytes = held.document.heap_bytes();
        result
    }
}
