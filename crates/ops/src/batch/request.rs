//! [`Request`]: one run of a batching op, possibly in several parts, which waits for its results.

use super::table_rows::concat_rows;
use kernel::{AsyncContext, BoundFunction, CancellationToken, Step};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// A node that waits for the results of its rows.
pub(super) struct Request {
    pub key: i64,
    pub step: Arc<Step>,
    /// The function's inputs besides rows.
    pub captured: Vec<Tensor>,
    /// The function that is called with the batch, if there is one.
    pub function: Option<BoundFunction>,
    state: Mutex<State>,
}

struct State {
    /// Taken by whichever call ends the node's work.
    context: Option<AsyncContext>,
    token: Option<CancellationToken>,
    /// The outputs of each part.
    parts: Vec<Option<Vec<Tensor>>>,
}

/// Some rows of a request.
pub(super) struct Task {
    pub request: Arc<Request>,
    pub part: usize,
    pub inputs: Vec<Tensor>,
    pub rows: usize,
}

impl Request {
    pub(super) fn new(
        key: i64,
        captured: Vec<Tensor>,
        function: Option<BoundFunction>,
        context: AsyncContext,
    ) -> Arc<Request> {
        let step = context.step().clone();
        let state = State { context: Some(context), token: None, parts: vec![None] };
        Arc::new(Request { key, step, captured, function, state: Mutex::new(state) })
    }

    /// Sets the number of parts of the answer.
    pub(super) fn expect_parts(&self, count: usize) {
        self.state.lock().parts = vec![None; count];
    }

    /// Sets the function that undoes the request when the node is done.
    pub(super) fn set_token(&self, token: CancellationToken) {
        self.state.lock().token = Some(token);
    }

    /// Takes the outputs of a part, and ends the node's work if it is the last one.
    pub(super) fn answer(&self, part: usize, outputs: Vec<Tensor>) {
        let parts = {
            let mut state = self.state.lock();
            if let Some(place) = state.parts.get_mut(part) {
                *place = Some(outputs);
            }
            if state.parts.iter().any(Option::is_none) {
                return;
            }
            std::mem::take(&mut state.parts)
        };
        let parts: Vec<Vec<Tensor>> = parts.into_iter().flatten().collect();
        let count = parts.first().map_or(0, Vec::len);
        let joined = (0..count).map(|output| {
            let parts: Vec<Tensor> = parts.iter().filter_map(|part| part.get(output).cloned()).collect();
            concat_rows(&parts)
        });
        self.finish(joined.collect());
    }

    /// Ends the node's work, unless it has ended already.
    pub(super) fn finish(&self, outputs: Result<Vec<Tensor>>) {
        let (context, token) = {
            let mut state = self.state.lock();
            (state.context.take(), state.token.take())
        };
        let Some(context) = context else { return };
        if let Some(token) = token {
            self.step.cancellation.deregister(token);
        }
        context.finish_with(|context| {
            for (index, output) in outputs?.into_iter().enumerate() {
                context.set_output(index, output);
            }
            Ok(())
        });
    }
}

impl Task {
    /// Ends the request with an error, on a thread of its step.
    pub(super) fn fail(self, status: Status) {
        let request = self.request;
        request.step.runner.clone().spawn(Box::new(move || request.finish(Err(status))));
    }
}
