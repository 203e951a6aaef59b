//! Runs one member's part of a collective op. All parts of a tensor are in progress at once, and a member's parts wait for their
//! receivers in the rendezvous, so the ops of a step never wait for each other, in whatever order members begin them.

use super::direct;
use super::exchange::{Exchange, Taken};
use super::ring::{Parts, Ring, subdiv_offsets};
use super::tree::Tree;
use futures_util::future::try_join_all;
use kernel::{CollectiveCall, CollectiveKind, ReductionPlan};
use tensor::{Result, Shape, Status, Tensor};

/// Runs the op for a member; `source` is the member that broadcasts.
pub(super) async fn execute(exchange: &Exchange, call: &CollectiveCall, source: Option<usize>) -> Result<Tensor> {
    match &call.kind {
        CollectiveKind::Reduce(plan) => reduce(exchange, plan, input(call)?).await,
        CollectiveKind::ReduceScatter(plan) => reduce_scatter(exchange, plan, input(call)?, &call.shape).await,
        CollectiveKind::Gather => gather(exchange, input(call)?, &call.shape).await,
        CollectiveKind::AllToAll => all_to_all(exchange, input(call)?).await,
        CollectiveKind::Broadcast { .. } => {
            let source = source.filter(|&rank| rank < exchange.group.members.len());
            let source = source.ok_or_else(|| Status::internal("a broadcast has no source"))?;
            broadcast(exchange, source, call).await
        }
    }
}

fn input(call: &CollectiveCall) -> Result<&Tensor> {
    call.input.as_ref().ok_or_else(|| Status::internal("a member gives nothing"))
}

fn flat(tensor: &Tensor) -> Result<Tensor> {
    tensor.reshape(Shape::vector(tensor.num_elements()))
}

/// Reduces the inputs of all members, directly if possible, otherwise in a ring. There each part goes round the ring twice: once
/// to be reduced, and once to be distributed.
async fn reduce(exchange: &Exchange, plan: &ReductionPlan, input: &Tensor) -> Result<Tensor> {
    let size = exchange.group.members.len();
    if size == 1 {
        return Ok(input.clone());
    }
    if direct::is_direct(&exchange.group) {
        let mut parts = direct::reduce(exchange, plan, &flat(input)?).await?;
        return match parts.pop() {
            Some(whole) if parts.is_empty() => whole.into_shape(input.shape().clone()),
            last => {
                parts.extend(last);
                exchange.put_together(input.shape(), &parts)
            }
        };
    }
    let offsets =
        subdiv_offsets(&exchange.group, &plan.subdiv_offsets, plan.max_subdivs_per_device, input.num_bytes())?;
    let rings: Vec<Ring> = offsets.iter().map(|&offset| Ring::new(&exchange.group, exchange.own, offset)).collect();
    let parts = Parts::aligned(input.num_elements(), input.dtype().size(), size * rings.len());
    let elements = flat(input)?;
    let mut fields = Vec::with_capacity(size * rings.len());
    for number in 0..size {
        for (index, ring) in rings.iter().enumerate() {
            let section = number * rings.len() + index;
            let range = parts.range(section);
            let own = elements.slice_rows(range.start, range.end)?;
            fields.push(async move {
                if own.num_elements() == 0 {
                    return Ok(own);
                }
                let (merged, mut taken) = first_round(exchange, plan, ring, number, section, own).await?;
                let is_last = ring.is_last_for(number);
                let whole = if is_last {
                    merged
                } else {
                    let key = exchange.key([1, section, ring.previous_rank()]);
                    exchange.receive(ring.previous(), &key, merged.num_elements()).await?
                };
                if !ring.ends_second_round_of(number) {
                    taken.push(exchange.post(&exchange.key([1, section, ring.rank]), whole.clone())?);
                }
                exchange.taken(taken).await?;
                Ok(whole)
            });
        }
    }
    let reduced = try_join_all(fields).await?;
    exchange.put_together(input.shape(), &reduced)
}

/// Adds this member's part to the sum of the previous members, and passes it on, unless it is the last.
async fn first_round(
    exchange: &Exchange,
    plan: &ReductionPlan,
    ring: &Ring,
    number: usize,
    section: usize,
    own: Tensor,
) -> Result<(Tensor, Vec<Taken>)> {
    let bytes = own.num_bytes();
    let is_last = ring.is_last_for(number);
    let merged = if number == ring.rank {
        own
    } else {
        let key = exchange.key([0, section, ring.previous_rank()]);
        let received = exchange.receive(ring.previous(), &key, own.num_elements()).await?;
        let reduction = plan.reduction.clone();
        let size = ring.members.len();
        let reduce = move |step: &_| {
            let merged = reduction.merge(step, own, received)?;
            if is_last { reduction.finish(step, merged, size) } else { Ok(merged) }
        };
        exchange.compute(bytes, reduce).await?
    };
    let mut taken = Vec::new();
    if !is_last {
        taken.push(exchange.post(&exchange.key([0, section, ring.rank]), merged.clone())?);
    }
    Ok((merged, taken))
}

/// Reduces the inputs of all members, each of which keeps its part: the first round of a reduction.
async fn reduce_scatter(exchange: &Exchange, plan: &ReductionPlan, input: &Tensor, shape: &Shape) -> Result<Tensor> {
    let size = exchange.group.members.len();
    if size == 1 {
        return Ok(input.clone());
    }
    let ring = Ring::new(&exchange.group, exchange.own, 0);
    let parts = Parts::even(input.num_elements(), size);
    if input.num_elements() == 0 {
        return input.reshape(shape.clone());
    }
    let elements = flat(input)?;
    let ring = &ring;
    let mut fields = Vec::with_capacity(size);
    for number in 0..size {
        // The last member to add to a part is the one before the first.
        let range = parts.range((number + size - 1) % size);
        let own = elements.slice_rows(range.start, range.end)?;
        fields.push(async move {
            let (merged, taken) = first_round(exchange, plan, ring, number, number, own).await?;
            exchange.taken(taken).await?;
            Ok::<_, Status>(ring.is_last_for(number).then_some(merged))
        });
    }
    let kept = try_join_all(fields).await?.into_iter().flatten().next();
    kept.ok_or_else(|| Status::internal("a member keeps no part of a reduction"))?.into_shape(shape.clone())
}

/// Gathers the inputs of all members: each goes round the ring once.
async fn gather(exchange: &Exchange, input: &Tensor, shape: &Shape) -> Result<Tensor> {
    let size = exchange.group.members.len();
    let ring = &Ring::new(&exchange.group, exchange.own, 0);
    let elements = flat(input)?;
    let count = elements.num_elements();
    // TensorFlow's tasks don't exchange parts without elements. Ours do, since members whose parts have some would wait for them.
    let has_parts = count > 0 || exchange.group.is_ours();
    let fields = (0..size).map(|number| {
        let own = elements.clone();
        async move {
            if number == ring.rank || !has_parts {
                let is_given = has_parts && !ring.is_last_for(number);
                let key = exchange.key([0, number, ring.rank]);
                let taken = if is_given { vec![exchange.post(&key, own.clone())?] } else { Vec::new() };
                exchange.taken(taken).await?;
                return Ok::<_, Status>(own);
            }
            let key = exchange.key([0, number, ring.previous_rank()]);
            let part = exchange.receive(ring.previous(), &key, count).await?;
            if !ring.is_last_for(number) {
                let taken = exchange.post(&exchange.key([0, number, ring.rank]), part.clone())?;
                exchange.taken(vec![taken]).await?;
            }
            Ok(part)
        }
    });
    let parts = try_join_all(fields).await?;
    exchange.put_together(shape, &parts)
}

/// Sends every member one row of the input, and receives one from each.
async fn all_to_all(exchange: &Exchange, input: &Tensor) -> Result<Tensor> {
    let (group, own) = (&exchange.group, exchange.own);
    let size = group.members.len();
    let parts = Parts::even(input.num_elements(), size);
    let elements = flat(input)?;
    let row = |index: usize| {
        let range = parts.range(index);
        elements.slice_rows(range.start, range.end)
    };
    if input.num_elements() == 0 {
        return Ok(input.clone());
    }
    let mut taken = Vec::with_capacity(size);
    for other in (0..size).filter(|&other| other != own) {
        taken.push(exchange.post(&exchange.pair_key(own, other), row(other)?)?);
    }
    let receives = (0..size).map(|other| {
        let given = row(own);
        async move {
            match other == own {
                true => given,
                false => exchange.receive(other, &exchange.pair_key(other, own), given?.num_elements()).await,
            }
        }
    });
    let received = try_join_all(receives).await?;
    exchange.taken(taken).await?;
    // Rows are in the order of the user's ranks, if there are any.
    let mut ranked: Vec<(usize, Tensor)> = group.members.iter().map(|member| member.rank).zip(received).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let rows: Vec<Tensor> = ranked.into_iter().map(|(_, row)| row).collect();
    exchange.put_together(input.shape(), &rows)
}

/// Passes a value along the trees that this member is part of.
async fn broadcast(exchange: &Exchange, source: usize, call: &CollectiveCall) -> Result<Tensor> {
    let mut value = call.input.as_ref().map(flat).transpose()?;
    let mut taken = Vec::new();
    for tree in Tree::all_of(&exchange.group, source, exchange.own) {
        if let Some(from) = tree.receives_from() {
            let key = exchange.key([tree.index, from, tree.rank]);
            value = Some(exchange.receive(tree.members[from], &key, call.shape.num_elements()).await?);
        }
        for target in tree.sends_to() {
            let value = value.clone().ok_or_else(|| Status::internal("a broadcast has no value"))?;
            taken.push(exchange.post(&exchange.key([tree.index, tree.rank, target]), value)?);
        }
    }
    exchange.taken(taken).await?;
    value.ok_or_else(|| Status::internal("a broadcast has no value"))?.into_shape(call.shape.clone())
}
