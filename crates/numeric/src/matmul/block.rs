//! The blocked matrix product: splits A, B and C so that what the micro-kernel reads stays in the caches.

use super::kernel::{ChosenSteps, HasMicrokernel, Microkernel, Panel, RowsOfA, Segment, group_rows};
use super::zeros::{self, Block};
use crate::parallel::{self, SharedMut};
use crate::scratch::{AlignedMemory, with_scratch};
use bytemuck::Pod;
use cpu_macros::each_level;
use std::marker::PhantomData;

/// A strided view of a matrix: element (i, j) is at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct MatrixView<'a, T> {
    pub data: &'a [T],
    pub row_stride: usize,
    pub column_stride: usize,
}

impl<'a, T> MatrixView<'a, T> {
    fn part(&self, row: usize, column: usize) -> MatrixView<'a, T> {
        MatrixView { data: &self.data[row * self.row_stride + column * self.column_stride..], ..*self }
    }

    /// Panics unless every element of a `rows` by `columns` matrix is inside the slice.
    pub(crate) fn check(&self, rows: usize, columns: usize) {
        if rows > 0 && columns > 0 {
            let last = (rows - 1) * self.row_stride + (columns - 1) * self.column_stride;
            assert!(last < self.data.len(), "a matrix operand is shorter than its dimensions say");
        }
    }
}

/// The second operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum RightOperand<'a, T> {
    View(MatrixView<'a, T>),
    /// Panels of the whole matrix, of which the product takes the columns from `first_column` on.
    Packed {
        panels: &'a Panels<T>,
        first_column: usize,
    },
}

impl<'a, T: HasMicrokernel + Pod> RightOperand<'a, T> {
    /// Returns the columns from one on, which starts a panel.
    fn starting_at(&self, column: usize) -> RightOperand<'a, T> {
        match *self {
            RightOperand::View(view) => RightOperand::View(view.starting_at(0, column)),
            RightOperand::Packed { panels, first_column } => {
                RightOperand::Packed { panels, first_column: first_column + column }
            }
        }
    }

    fn is_finite(&self, depth: usize, columns: usize) -> bool {
        match self {
            RightOperand::View(view) => zeros::is_finite(*view, depth, columns),
            RightOperand::Packed { panels, .. } => panels.is_finite(),
        }
    }
}

/// The size of a panel of B, which stays in the L1 cache while the rows of A stream past.
const PANEL_BYTES: usize = 20 << 10;
/// Bytes of the packed block of B.
const B_BLOCK_BYTES: usize = 512 << 10;
/// Adjacent panels of B that are packed together where each is used once, since a row of B is read in one go.
const STRIP_PANELS: usize = 4;
/// Bytes of the block of A, which stays in the L2 cache.
const A_BLOCK_BYTES: usize = 160 << 10;

/// Computes `c = a × b`, or `c += a × b`, for one thread; C is row-major with `c_row_stride`.
///
/// # Safety
/// `c` is valid for `m` rows of `n` elements at its stride, and nothing else touches them. The views were checked.
pub(crate) unsafe fn multiply<T: HasMicrokernel + Pod>(
    m: usize,
    n: usize,
    k: usize,
    a: MatrixView<'_, T>,
    b: RightOperand<'_, T>,
    c: *mut T,
    c_row_stride: usize,
    accumulate: bool,
) {
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if !accumulate {
            for row in 0..m {
                // SAFETY: the caller guarantees C.
                unsafe { std::slice::from_raw_parts_mut(c.add(row * c_row_stride), n) }.fill(T::ZERO);
            }
        }
        return;
    }
    let kernel = T::microkernel();
    let element = size_of::<T>();
    let depth_step = depth_step::<T>(k, &kernel);
    let row_step = round_up((A_BLOCK_BYTES / (depth_step * element)).max(kernel.rows), kernel.rows);
    let skip_zeros = zeros::pays(m, n, k, a, kernel.rows, kernel.columns, || b.is_finite(k, n));
    // A row-major A is read in place. Any other would touch one cache line per row for every step of the depth.
    let pack_a = a.column_stride != 1;
    // Packing B costs a pass over it, which does not pay for few rows.
    let pack_b = matches!(b, RightOperand::View(view) if view.column_stride != 1 || m > 2 * kernel.rows);
    // Where one block holds all rows, B is used once, and is packed in strips that never leave the cache.
    let one_block = m <= row_step;
    let column_step = if one_block {
        STRIP_PANELS * kernel.columns
    } else {
        round_up((B_BLOCK_BYTES / (depth_step * element)).max(kernel.columns), kernel.columns)
    };
    let packed_columns = match b {
        RightOperand::Packed { .. } => 0,
        RightOperand::View(_) if pack_b => round_up(n.min(column_step), kernel.columns),
        RightOperand::View(_) => kernel.columns,
    };
    let packed_rows = if pack_a { row_step.min(m) } else { 0 };
    let chosen_groups = if skip_zeros { row_step.min(m).div_ceil(kernel.rows) } else { 0 };
    with_scratch(packed_columns * depth_step, |packed_b: &mut [T]| {
        with_scratch(packed_rows * depth_step, |packed_a: &mut [T]| {
            with_scratch(chosen_groups * (depth_step + 1), |chosen: &mut [u32]| {
                let (counts, steps) = chosen.split_at_mut(chosen_groups);
                let mut rows_of = |a: MatrixView<'_, T>, rows: usize, depth: usize| {
                    let mut chosen =
                        |block| skip_zeros.then(|| zeros::choose(block, rows, depth, kernel.rows, steps, counts));
                    if pack_a {
                        pack_rows(a, rows, depth, kernel.rows, packed_a);
                        let chosen = chosen(Block::Packed(packed_a));
                        return (RowsOfA::Packed { data: packed_a.as_ptr() }, chosen);
                    }
                    let MatrixView { data, row_stride, column_stride } = a;
                    let chosen = chosen(Block::Rows { data, row_stride });
                    (RowsOfA::Strided { data: data.as_ptr(), row_stride, column_stride }, chosen)
                };
                let outer_step = if one_block { n } else { column_step };
                for outer_column in (0..n).step_by(outer_step) {
                    for first_depth in (0..k).step_by(depth_step) {
                        let depth = depth_step.min(k - first_depth);
                        let mut rows_of_a = None;
                        for first_column in (outer_column..n.min(outer_column + outer_step)).step_by(column_step) {
                            let columns = column_step.min(n - first_column);
                            let mut b = match b {
                                RightOperand::View(view) => {
                                    let view = view.part(first_depth, first_column);
                                    if pack_b {
                                        pack_columns(view, depth, columns, kernel.columns, packed_b);
                                        BlockOfB::Packed(&*packed_b)
                                    } else {
                                        BlockOfB::InPlace(view, &mut *packed_b)
                                    }
                                }
                                RightOperand::Packed { panels, first_column: before } => {
                                    BlockOfB::Packed(panels.block(first_depth, depth, before + first_column))
                                }
                            };
                            for first_row in (0..m).step_by(row_step) {
                                let rows = row_step.min(m - first_row);
                                let block_of_a = match rows_of_a {
                                    Some(block_of_a) if one_block => block_of_a,
                                    _ => rows_of(a.part(first_row, first_depth), rows, depth),
                                };
                                rows_of_a = Some(block_of_a);
                                // SAFETY: inside C by the loop bounds; the packed buffers hold the block.
                                unsafe {
                                    block(
                                        &kernel,
                                        rows,
                                        depth,
                                        columns,
                                        block_of_a,
                                        &mut b,
                                        c.add(first_row * c_row_stride + first_column),
                                        c_row_stride,
                                        accumulate || first_depth > 0,
                                    );
                                }
                            }
                        }
                    }
                }
            });
        });
    });
}

/// A block of B.
enum BlockOfB<'a, T> {
    /// Its panels.
    Packed(&'a [T]),
    /// Where it is, and room for a panel.
    InPlace(MatrixView<'a, T>, &'a mut [T]),
}

/// Returns how many steps of the depth a block has.
fn depth_step<T>(k: usize, kernel: &Microkernel<T>) -> usize {
    let most = (PANEL_BYTES / (kernel.columns * size_of::<T>())).max(32);
    k.div_ceil(k.div_ceil(most).max(1))
}

/// A whole operand B in panels, block of the depth by block.
pub(crate) struct Panels<T> {
    memory: AlignedMemory,
    depth: usize,
    /// The columns of all panels together.
    columns: usize,
    is_finite: bool,
    element: PhantomData<T>,
}

impl<T: HasMicrokernel + Pod> Panels<T> {
    /// Returns the bytes that the panels of a matrix need.
    pub(crate) fn bytes(depth: usize, columns: usize) -> usize {
        depth.saturating_mul(round_up(columns, T::microkernel().columns)).saturating_mul(size_of::<T>())
    }

    /// Packs a matrix into memory of [`Panels::bytes`].
    pub(crate) fn pack(b: MatrixView<'_, T>, depth: usize, columns: usize, mut memory: AlignedMemory) -> Panels<T> {
        b.check(depth, columns);
        let kernel = T::microkernel();
        let padded = round_up(columns, kernel.columns);
        let step = depth_step(depth, &kernel).max(1);
        let packed = memory.elements_mut(depth * padded);
        for (first, packed) in (0..depth).step_by(step).zip(packed.chunks_mut(step * padded)) {
            pack_columns(b.part(first, 0), step.min(depth - first), columns, kernel.columns, packed);
        }
        let is_finite = zeros::is_finite(b, depth, columns);
        Panels { memory, depth, columns: padded, is_finite, element: PhantomData }
    }

    fn is_finite(&self) -> bool {
        self.is_finite
    }

    /// Returns the panels of a block of the depth from a column on.
    fn block(&self, first_depth: usize, depth: usize, column: usize) -> &[T] {
        let start = first_depth * self.columns;
        &self.memory.elements(self.depth * self.columns)[start + column * depth..start + depth * self.columns]
    }

    /// Returns the memory, for other panels.
    pub(crate) fn into_memory(self) -> AlignedMemory {
        self.memory
    }
}

/// Multiplies a block of A by every panel of a block of B.
///
/// # Safety
/// As for [`multiply`]; the block has the depth and at least the columns.
unsafe fn block<T: HasMicrokernel + Pod>(
    kernel: &Microkernel<T>,
    rows: usize,
    depth: usize,
    columns: usize,
    (a, chosen): (RowsOfA<T>, Option<ChosenSteps>),
    b: &mut BlockOfB<'_, T>,
    c: *mut T,
    c_row_stride: usize,
    accumulate: bool,
) {
    for column in (0..columns).step_by(kernel.columns) {
        let width = kernel.columns.min(columns - column);
        let (panel, panel_row_stride) = match b {
            BlockOfB::Packed(panels) => (panels[column * depth..][..depth * kernel.columns].as_ptr(), kernel.columns),
            BlockOfB::InPlace(b, _) if width == kernel.columns => (b.part(0, column).data.as_ptr(), b.row_stride),
            BlockOfB::InPlace(b, room) => {
                // The kernel reads full registers, so the last columns get a padded copy.
                pack_columns(b.part(0, column), depth, width, kernel.columns, room);
                (room.as_ptr(), kernel.columns)
            }
        };
        let arguments = Panel {
            rows,
            segments: &[Segment { offset: 0, len: depth }],
            a,
            chosen,
            b: panel,
            b_row_stride: panel_row_stride,
            // SAFETY: `column` is inside the block.
            c: unsafe { c.add(column) },
            c_row_stride,
            columns: width,
            accumulate,
        };
        // SAFETY: the kernel was chosen for this processor; the caller guarantees the sizes.
        unsafe { (kernel.run)(&arguments) };
    }
}

/// Copies columns of B into panels of `width` columns, the last one padded with zeros.
#[each_level]
pub(crate) fn pack_columns<T: HasMicrokernel + Pod>(
    b: MatrixView<'_, T>,
    depth: usize,
    columns: usize,
    width: usize,
    packed: &mut [T],
) {
    for (panel, first) in packed.chunks_mut(width * depth).zip((0..columns).step_by(width)) {
        let filled = width.min(columns - first);
        let source = &b.data[first * b.column_stride..];
        if b.column_stride == 1 {
            if filled == width {
                // Rows whose length is a constant are copied inline, without a call for each.
                match width {
                    8 => copy_groups::<T, 8>(source, b.row_stride, panel),
                    16 => copy_groups::<T, 16>(source, b.row_stride, panel),
                    32 => copy_groups::<T, 32>(source, b.row_stride, panel),
                    _ => {
                        for (step, row) in panel.chunks_exact_mut(width).enumerate() {
                            row.copy_from_slice(&source[step * b.row_stride..][..width]);
                        }
                    }
                }
            } else {
                for (step, row) in panel.chunks_exact_mut(width).enumerate() {
                    let from = &source[step * b.row_stride..][..filled];
                    // Element by element, since a call of `memcpy` for each short row would take longer.
                    for (column, to) in row.iter_mut().enumerate() {
                        *to = if column < filled { from[column] } else { T::ZERO };
                    }
                }
            }
        } else {
            interleave(source, b.column_stride, b.row_stride, filled, depth, width, panel);
        }
    }
}

/// Copies rows of A into the groups that the kernel reads.
#[each_level]
fn pack_rows<T: HasMicrokernel + Pod>(
    a: MatrixView<'_, T>,
    rows: usize,
    depth: usize,
    most_rows: usize,
    packed: &mut [T],
) {
    let mut row = 0;
    while row < rows {
        let group = group_rows(rows - row, most_rows);
        let source = &a.data[row * a.row_stride..];
        let target = &mut packed[row * depth..][..group * depth];
        if a.row_stride == 1 {
            match group {
                6 => copy_groups::<T, 6>(source, a.column_stride, target),
                5 => copy_groups::<T, 5>(source, a.column_stride, target),
                4 => copy_groups::<T, 4>(source, a.column_stride, target),
                12 => copy_groups::<T, 12>(source, a.column_stride, target),
                _ => {
                    for (step, chunk) in target.chunks_exact_mut(group).enumerate() {
                        chunk.copy_from_slice(&source[step * a.column_stride..][..group]);
                    }
                }
            }
        } else {
            interleave(source, a.row_stride, a.column_stride, group, depth, group, target);
        }
        row += group;
    }
}

#[inline(always)]
fn copy_groups<T: Copy, const GROUP: usize>(source: &[T], stride: usize, target: &mut [T]) {
    for (step, chunk) in target.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        chunk.copy_from_slice(&source[step * stride..][..GROUP]);
    }
}

/// Interleaves `lanes` lines, which are `line_stride` apart with elements `step_stride` apart: the element at `step` of line
/// `lane` goes to `step * width + lane`. Lanes up to `width` are padded with zeros.
#[inline(always)]
fn interleave<T: HasMicrokernel + Pod>(
    source: &[T],
    line_stride: usize,
    step_stride: usize,
    lanes: usize,
    steps: usize,
    width: usize,
    target: &mut [T],
) {
    let mut lane = 0;
    if step_stride == 1 {
        // Eight lines at a time: each write fills half a cache line and each line is read in order.
        while lane + 8 <= lanes {
            let lines: [&[T]; 8] = std::array::from_fn(|i| &source[(lane + i) * line_stride..][..steps]);
            for step in 0..steps {
                let to = &mut target[step * width + lane..][..8];
                for i in 0..8 {
                    to[i] = lines[i][step];
                }
            }
            lane += 8;
        }
    }
    while lane < lanes {
        for step in 0..steps {
            target[step * width + lane] = source[lane * line_stride + step * step_stride];
        }
        lane += 1;
    }
    for padding in lanes..width {
        for step in 0..steps {
            target[step * width + padding] = T::ZERO;
        }
    }
}

/// Computes `c = a × b` on as many threads as pay, and calls `finish` with each part of C while it is still in the cache.
pub(crate) fn multiply_parallel<T: HasMicrokernel + Pod + Send + Sync>(
    m: usize,
    n: usize,
    k: usize,
    a: MatrixView<'_, T>,
    b: RightOperand<'_, T>,
    c: &mut [T],
    accumulate: bool,
    finish: &(dyn Fn(Part<'_, T>) + Sync),
) {
    a.check(m, k);
    match b {
        RightOperand::View(view) => view.check(k, n),
        RightOperand::Packed { panels, first_column } => {
            assert!(panels.depth == k && first_column + n <= panels.columns, "panels of another matrix");
        }
    }
    assert_eq!(c.len(), m * n, "the output has another size than the product");
    let plan = parallel::Plan::new(nanoseconds(m, n, k, size_of::<T>()));
    let (row_parts, column_parts) = split(m, n, k, size_of::<T>(), T::microkernel().columns, plan.threads());
    let row_step = m.div_ceil(row_parts).max(1);
    let column_step = round_up(n.div_ceil(column_parts), T::microkernel().columns).max(1);
    let shared = SharedMut::new(c);
    let part = |task: usize| {
        let first_row = task / column_parts * row_step;
        let first_column = task % column_parts * column_step;
        if first_row >= m || first_column >= n {
            return;
        }
        let rows = row_step.min(m - first_row);
        let columns = column_step.min(n - first_column);
        // SAFETY: parts do not overlap and lie inside C, whose size was checked; so were the views.
        unsafe {
            let part_of_c = shared.as_mut_ptr().add(first_row * n + first_column);
            multiply(
                rows,
                columns,
                k,
                a.starting_at(first_row, 0),
                b.starting_at(first_column),
                part_of_c,
                n,
                accumulate,
            );
        }
        finish(Part { c: &shared, row_length: n, first_row, first_column, rows, columns });
    };
    plan.run(row_parts * column_parts, &part);
}

/// Estimates how long a product takes on one thread.
fn nanoseconds(m: usize, n: usize, k: usize, element: usize) -> f64 {
    m as f64 * n as f64 * k as f64 * element as f64 / 160.0
}

impl<'a, T> MatrixView<'a, T> {
    /// Returns a part of the view, which may be empty.
    fn starting_at(&self, row: usize, column: usize) -> MatrixView<'a, T> {
        let offset = row * self.row_stride + column * self.column_stride;
        MatrixView { data: self.data.get(offset..).unwrap_or(&[]), ..*self }
    }
}

/// A finished part of C.
pub(crate) struct Part<'a, T> {
    c: &'a SharedMut<T>,
    row_length: usize,
    first_row: usize,
    pub first_column: usize,
    rows: usize,
    columns: usize,
}

impl<T> Part<'_, T> {
    /// Calls `body` with each row of the part.
    pub(crate) fn for_each_row(&mut self, mut body: impl FnMut(&mut [T])) {
        for row in self.first_row..self.first_row + self.rows {
            // SAFETY: this part belongs to one task, which lends out one row at a time.
            body(unsafe { self.c.slice(row * self.row_length + self.first_column, self.columns) });
        }
    }
}

/// Returns how many parts to split the rows and the columns of C into. The result does not depend on it.
fn split(m: usize, n: usize, k: usize, element: usize, panel_columns: usize, threads: usize) -> (usize, usize) {
    if threads == 1 {
        return (1, 1);
    }
    // With more parts than threads, a slow thread matters less, but each part repeats some packing.
    let parts = if nanoseconds(m, n, k, element) > 4e6 { 2 * threads } else { threads };
    let mut best = (1, 1);
    let mut best_cost = f64::MAX;
    for row_parts in 1..=parts {
        if parts % row_parts != 0 {
            continue;
        }
        let column_parts = parts / row_parts;
        // Packing B is repeated for each part of the rows, reading A for each part of the columns; narrow parts waste
        // lanes of the last panel.
        let repeated = (row_parts * k * n + column_parts * m * k) as f64;
        let column_step = n.div_ceil(column_parts);
        let wasted = (round_up(column_step, panel_columns) * column_parts) as f64 / n.max(1) as f64;
        let rows_wasted = if m < row_parts * 4 { 2.0 } else { 1.0 };
        let cost = (m * n * k) as f64 * wasted * rows_wasted / 8.0 + repeated;
        if cost < best_cost {
            best_cost = cost;
            best = (row_parts, column_parts);
        }
    }
    best
}

fn round_up(value: usize, multiple: usize) -> usize {
    value.div_ceil(multiple) * multiple
}
