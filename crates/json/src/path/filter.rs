//! Filters: what a path asks about a value.

use std::cmp::Ordering;

use regex::bytes::{Regex, RegexBuilder};

use super::{
    Segment, Selector,
    evaluate::{Budget, TooExpensive, evaluate, index_of},
};
use crate::{Kind, ValueRef};

/// Most bytes of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// Steps that compiling a regular expression costs, for each of its bytes.
const REGEX_COST: u64 = 1000;

/// Operators in postfix order.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) operators: Vec<Operator>,
}

#[derive(Debug)]
pub(super) enum Operator {
    And,
    Or,
    Exists(Term),
    Compare(Term, Comparison, Term),
    /// Whether a text holds a match; `None` if the expression is none.
    Matches(Term, Option<Regex>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
    Matches,
}

#[derive(Debug)]
pub(super) enum Term {
    /// A packed scalar.
    Literal(Vec<u8>),
    Path {
        from_root: bool,
        segments: Vec<Segment>,
    },
}

impl Operator {
    pub(super) fn compare(left: Term, comparison: Comparison, right: Term) -> Self {
        if comparison == Comparison::Matches
            && let Term::Literal(literal) = &right
        {
            let expression = ValueRef::packed(literal).as_string().and_then(regex);
            return Self::Matches(left, expression);
        }
        Self::Compare(left, comparison, right)
    }
}

fn regex(text: &[u8]) -> Option<Regex> {
    let text = std::str::from_utf8(text).ok()?;
    RegexBuilder::new(text).unicode(false).size_limit(REGEX_BYTES_MAX).build().ok()
}

impl Filter {
    /// Whether a value passes. `depth` counts filters around this one.
    pub(super) fn passes<'a>(
        &self,
        root: ValueRef<'a>,
        value: ValueRef<'a>,
        depth: usize,
        budget: &mut Budget,
    ) -> Result<bool, TooExpensive> {
        // Almost all filters have one or two comparisons.
        let mut results = Vec::with_capacity(self.operators.len().min(8));
        for operator in &self.operators {
            budget.spend(1)?;
            let result = match operator {
                Operator::And | Operator::Or => {
                    let (right, left) = (results.pop() == Some(true), results.pop() == Some(true));
                    if matches!(operator, Operator::And) { left && right } else { left || right }
                }
                Operator::Exists(term) => term.value(root, value, depth, budget)?.is_some(),
                Operator::Matches(left, expression) => {
                    let left = left.value(root, value, depth, budget)?;
                    match (left.and_then(|left| left.as_string()), expression) {
                        (Some(text), Some(expression)) => {
                            budget.spend(text.len() as u64 / 16)?;
                            expression.is_match(text)
                        }
                        _ => false,
                    }
                }
                Operator::Compare(left, comparison, right) => {
                    let left = left.value(root, value, depth, budget)?;
                    let right = right.value(root, value, depth, budget)?;
                    compare(left, *comparison, right, budget)?
                }
            };
            results.push(result);
        }
        Ok(results.pop() == Some(true))
    }
}

impl Term {
    /// The value, if it is exactly one.
    fn value<'a>(
        &'a self,
        root: ValueRef<'a>,
        value: ValueRef<'a>,
        depth: usize,
        budget: &mut Budget,
    ) -> Result<Option<ValueRef<'a>>, TooExpensive> {
        let (from_root, segments) = match self {
            Self::Literal(literal) => return Ok(Some(ValueRef::packed(literal))),
            Self::Path { from_root, segments } => (*from_root, segments),
        };
        let mut start = if from_root { root } else { value };
        if super::is_static(segments) {
            for segment in segments {
                budget.spend(1)?;
                let next = match &segment.selector {
                    Selector::Names(names) => start.find(&names[0]).map(|(_, value)| value),
                    Selector::Indexes(indexes) if start.is_array() => {
                        index_of(indexes[0], start.len()).and_then(|index| start.item(index))
                    }
                    _ => None,
                };
                match next {
                    Some(value) => start = value,
                    None => return Ok(None),
                }
            }
            return Ok(Some(start));
        }
        let (mut found, mut count) = (None, 0);
        evaluate(segments, root, start, depth + 1, budget, |_, value| {
            found = Some(value);
            count += 1;
            count < 2
        })?;
        Ok(found.filter(|_| count == 1))
    }
}

fn compare(
    left: Option<ValueRef<'_>>,
    comparison: Comparison,
    right: Option<ValueRef<'_>>,
    budget: &mut Budget,
) -> Result<bool, TooExpensive> {
    let equal = |budget: &mut Budget| -> Result<bool, TooExpensive> {
        let (Some(left), Some(right)) = (left, right) else { return Ok(false) };
        if left.len() != right.len() {
            return Ok(false);
        }
        budget.spend(cost(left)?)?;
        Ok(left.equals(&right))
    };
    match comparison {
        Comparison::Equal => equal(budget),
        Comparison::NotEqual => Ok(!equal(budget)?),
        Comparison::Matches => {
            let (text, expression) =
                (left.and_then(|left| left.as_string()), right.and_then(|right| right.as_string()));
            let (Some(text), Some(expression)) = (text, expression) else { return Ok(false) };
            budget.spend(expression.len() as u64 * REGEX_COST + text.len() as u64 / 16)?;
            Ok(regex(expression).is_some_and(|expression| expression.is_match(text)))
        }
        _ => {
            let (Some(left), Some(right)) = (left, right) else { return Ok(false) };
            let order = match (left.as_number(), right.as_number()) {
                (Some(left), Some(right)) => Some(left.compare(right)),
                _ => match (left.kind(), right.kind()) {
                    (Kind::Null, Kind::Null) => Some(Ordering::Equal),
                    (Kind::Boolean, Kind::Boolean) => Some(left.as_bool().cmp(&right.as_bool())),
                    (Kind::String, Kind::String) => Some(left.as_string().cmp(&right.as_string())),
                    _ => None,
                },
            };
            Ok(order.is_some_and(|order| match comparison {
                Comparison::Less => order.is_lt(),
                Comparison::AtMost => order.is_le(),
                Comparison::More => order.is_gt(),
                _ => order.is_ge(),
            }))
        }
    }
}

/// Steps that visiting all of a value may take.
fn cost(value: ValueRef<'_>) -> Result<u64, TooExpensive> {
    Ok(match value.bytes() {
        Some(bytes) => bytes.len() as u64 / 16,
        None => value.large().map_or(1, |large| large.runs.iter().map(|run| run.bytes.len() as u64).sum()),
    })
}
