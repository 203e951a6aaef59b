//! Reductions in which every member reads the others' tensors directly. Between tasks on one machine that is a reduction in
//! shared memory: a part is read in place, and only results that others have reduced are copied.
//!
//! All members add in rank order, so that all have the same result, to the last bit.

use super::exchange::Exchange;
use super::group::Group;
use super::ring::Parts;
use crate::device::reduces_directly;
use futures_util::future::try_join_all;
use kernel::ReductionPlan;
use std::ops::Range;
use std::sync::Arc;
use tensor::{Result, Tensor};

/// In larger groups, all-to-all requests would be too many; their parts go round a ring.
const MEMBERS_MAX: usize = 16;

/// Up to this total size in bytes, every member reduces everything: a second exchange would take longer.
const WHOLE_BYTES_MAX: usize = 256 << 10;

/// The phases of a reduction's exchange, as in the keys. Rings use the numbers below.
const GIVEN: usize = 2;
const REDUCED: usize = 3;

/// Returns whether the members of a group use direct reductions. All members decide alike, because all have the same information.
pub(super) fn is_direct(group: &Group) -> bool {
    group.members.len() <= MEMBERS_MAX && group.members.iter().all(|member| reduces_directly(&member.attributes))
}

/// Reduces the inputs of all members; `elements` is this member's.
pub(super) async fn reduce(exchange: &Exchange, plan: &ReductionPlan, elements: &Tensor) -> Result<Vec<Tensor>> {
    let (size, own) = (exchange.group.members.len(), exchange.own);
    let count = elements.num_elements();
    if count == 0 {
        return Ok(vec![elements.clone()]);
    }
    // With two members, reducing everything reads no more than two exchanges would.
    let is_whole = size <= 2 || elements.num_bytes().saturating_mul(size) <= WHOLE_BYTES_MAX;
    let parts = Parts::aligned(count, elements.dtype().size(), size);
    let range = |member: usize| if is_whole { 0..count } else { parts.range(member) };
    let mut taken = Vec::with_capacity(2 * size);
    let part = |range: Range<usize>| elements.slice_rows(range.start, range.end);
    for member in others(exchange).filter(|&member| !range(member).is_empty()) {
        taken.push(exchange.post(&exchange.key([GIVEN, own, member]), part(range(member))?)?);
    }
    let reduced = reduce_part(exchange, plan, part(range(own))?).await?;
    if is_whole {
        exchange.taken(taken).await?;
        return Ok(vec![reduced]);
    }
    for member in others(exchange).filter(|_| reduced.num_elements() > 0) {
        taken.push(exchange.post(&exchange.key([REDUCED, own, member]), reduced.clone())?);
    }
    let whole = try_join_all((0..size).map(|member| {
        let reduced = (member == own).then(|| reduced.clone());
        let count = range(member).len();
        async move {
            match reduced {
                Some(reduced) => Ok(reduced),
                None if count == 0 => elements.slice_rows(0, 0),
                None => exchange.receive(member, &exchange.key([REDUCED, member, own]), count).await,
            }
        }
    }));
    let whole = whole.await?;
    exchange.taken(taken).await?;
    Ok(whole)
}

/// Reduces this member's part of all members' inputs.
async fn reduce_part(exchange: &Exchange, plan: &ReductionPlan, own: Tensor) -> Result<Tensor> {
    let (count, bytes) = (own.num_elements(), own.num_bytes());
    if count == 0 {
        return Ok(own);
    }
    let given = (0..exchange.group.members.len()).map(|member| {
        let own = (member == exchange.own).then(|| own.clone());
        async move {
            match own {
                Some(own) => Ok(own),
                None => exchange.receive(member, &exchange.key([GIVEN, member, exchange.own]), count).await,
            }
        }
    });
    let given = try_join_all(given).await?;
    drop(own);
    let reduction = plan.reduction.clone();
    exchange.compute(bytes, move |step: &Arc<_>| reduction.reduce(step, given)).await
}

/// Returns the other members, beginning with the next one, so that not all ask the same one first.
fn others(exchange: &Exchange) -> impl Iterator<Item = usize> + use<> {
    let (size, own) = (exchange.group.members.len(), exchange.own);
    (1..size).map(move |distance| (own + distance) % size)
}
