//! The micro-kernels: a few rows of A times one packed panel of B, accumulated in registers.
//!
//! One generic tile is compiled for every element type and instruction set; [`HasMicrokernel::microkernel`] picks one at run
//! time.

use crate::simd::{Lanes, MulAdd};
use cpu::{Level, level};
use num_complex::Complex;

/// The arguments of a micro-kernel: rows of A, one panel of B, and the columns of C that they produce.
pub(crate) struct Panel<'a, T> {
    pub rows: usize,
    /// The runs that the depth of A consists of; for a matrix, one segment that starts at 0.
    pub segments: &'a [Segment],
    pub a: RowsOfA<T>,
    /// The steps of the depth to compute, if not all. There is only one segment then.
    pub chosen: Option<ChosenSteps>,
    /// The panel: as many rows as the segments have steps in total, each as wide as the kernel.
    pub b: *const T,
    pub b_row_stride: usize,
    pub c: *mut T,
    pub c_row_stride: usize,
    /// Columns of C to write, at most the width of the kernel.
    pub columns: usize,
    /// Whether to add to C rather than overwrite it.
    pub accumulate: bool,
}

/// A run of the depth: element `p` of it is `offset + p * column_stride` from the start of its row of A.
///
/// A convolution reads the window of an output pixel straight from the image: a segment for each line of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub offset: usize,
    pub len: usize,
}

/// How the rows of A are stored.
#[derive(Clone, Copy)]
pub(crate) enum RowsOfA<T> {
    /// Element (i, p) is at `i * row_stride + p * column_stride`.
    Strided { data: *const T, row_stride: usize, column_stride: usize },
    /// The groups of [`group_rows`] one after the other; within a group, the rows' elements of each step are adjacent.
    Packed { data: *const T },
}

/// The steps of the depth to compute for each group of rows, in order; the others are skipped.
#[derive(Clone, Copy)]
pub(crate) struct ChosenSteps {
    /// For each group, an array as long as the depth, whose first `counts` entries are used.
    pub steps: *const u32,
    /// The number of steps for each group.
    pub counts: *const u32,
}

/// Returns how many of the remaining rows form the next group: full groups, and two of about equal size at the end, since a
/// group of one or two rows cannot keep the multipliers busy.
#[inline(always)]
pub(crate) fn group_rows(remaining: usize, most: usize) -> usize {
    if remaining >= 2 * most {
        most
    } else if remaining > most {
        remaining.div_ceil(2)
    } else {
        remaining
    }
}

/// A micro-kernel for elements of type `T`.
pub(crate) struct Microkernel<T> {
    /// The most rows in a group.
    pub rows: usize,
    /// Columns of a full panel of B.
    pub columns: usize,
    /// Multiplies a panel.
    ///
    /// # Safety
    /// The processor has the kernel's instruction set and the pointers of the panel are valid for its sizes.
    pub run: unsafe fn(&Panel<'_, T>),
}

/// An element type that has micro-kernels.
pub(crate) trait HasMicrokernel: MulAdd {
    fn microkernel() -> Microkernel<Self>;
}

#[inline(always)]
unsafe fn panel<V: Lanes, const ROWS: usize>(panel: &Panel<'_, V::Scalar>)
where
    V::Scalar: MulAdd,
{
    let depth: usize = panel.segments.iter().map(|segment| segment.len).sum();
    let mut row = 0;
    for number in 0.. {
        if row >= panel.rows {
            break;
        }
        let group = group_rows(panel.rows - row, ROWS);
        let (a, row_stride, column_stride) = match panel.a {
            // SAFETY: `row` is below `rows`, which the caller guarantees.
            RowsOfA::Strided { data, row_stride, column_stride } => {
                (unsafe { data.add(row * row_stride) }, row_stride, column_stride)
            }
            // SAFETY: earlier groups hold `row * depth` elements.
            RowsOfA::Packed { data } => (unsafe { data.add(row * depth) }, 1, group),
        };
        // SAFETY: earlier groups have room for `depth` steps each.
        let chosen = panel.chosen.map(|ChosenSteps { steps, counts }| unsafe {
            std::slice::from_raw_parts(steps.add(number * depth), *counts.add(number) as usize)
        });
        // SAFETY: as above.
        let c = unsafe { panel.c.add(row * panel.c_row_stride) };
        macro_rules! tile {
            ($rows:literal) => {{
                // More rows than the kernel holds never occur; the bound keeps those tiles out of the binary.
                if $rows <= ROWS {
                    // SAFETY: the caller guarantees the panel.
                    unsafe {
                        match (chosen, panel.columns <= V::LANES) {
                            (None, true) => tile::<V, $rows, 1>(panel, a, row_stride, column_stride, c),
                            (None, false) => tile::<V, $rows, 2>(panel, a, row_stride, column_stride, c),
                            (Some(steps), true) => {
                                tile_of_steps::<V, $rows, 1>(panel, a, row_stride, column_stride, steps, c)
                            }
                            (Some(steps), false) => {
                                tile_of_steps::<V, $rows, 2>(panel, a, row_stride, column_stride, steps, c)
                            }
                        }
                    }
                }
            }};
        }
        match group {
            1 => tile!(1),
            2 => tile!(2),
            3 => tile!(3),
            4 => tile!(4),
            5 => tile!(5),
            6 => tile!(6),
            7 => tile!(7),
            8 => tile!(8),
            9 => tile!(9),
            10 => tile!(10),
            11 => tile!(11),
            _ => tile!(12),
        }
        row += group;
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    panel: &Panel<'_, V::Scalar>,
    a: *const V::Scalar,
    row_stride: usize,
    column_stride: usize,
    c: *mut V::Scalar,
) where
    V::Scalar: MulAdd,
{
    // SAFETY: the caller guarantees the instruction set and the sizes in `panel`.
    unsafe {
        let mut sums = [[V::splat(V::Scalar::ZERO); VECTORS]; ROWS];
        let mut b = panel.b;
        for segment in panel.segments {
            let mut a = a.add(segment.offset);
            for _ in 0..segment.len {
                add_step(&mut sums, a, row_stride, b);
                a = a.add(column_stride);
                b = b.add(panel.b_row_stride);
            }
        }
        finish_tile(panel, &sums, c);
    }
}

/// As [`tile`], for some steps of the depth only.
#[inline(always)]
unsafe fn tile_of_steps<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    panel: &Panel<'_, V::Scalar>,
    a: *const V::Scalar,
    row_stride: usize,
    column_stride: usize,
    steps: &[u32],
    c: *mut V::Scalar,
) where
    V::Scalar: MulAdd,
{
    // SAFETY: as for `tile`; the steps are below the depth.
    unsafe {
        let mut sums = [[V::splat(V::Scalar::ZERO); VECTORS]; ROWS];
        for &step in steps {
            let step = step as usize;
            add_step(&mut sums, a.add(step * column_stride), row_stride, panel.b.add(step * panel.b_row_stride));
        }
        finish_tile(panel, &sums, c);
    }
}

/// Adds the product of one step of the depth: a column of A times a row of the panel.
#[inline(always)]
unsafe fn add_step<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[V; VECTORS]; ROWS],
    a: *const V::Scalar,
    row_stride: usize,
    b: *const V::Scalar,
) {
    // SAFETY: the caller guarantees the instruction set and the pointers.
    unsafe {
        let mut columns = [V::load(b); VECTORS];
        for vector in 1..VECTORS {
            columns[vector] = V::load(b.add(vector * V::LANES));
        }
        for row in 0..ROWS {
            let factor = V::splat(*a.add(row * row_stride));
            for vector in 0..VECTORS {
                sums[row][vector] = factor.mul_add(columns[vector], sums[row][vector]);
            }
        }
    }
}

/// Writes the sums of a tile to C, or adds them to it.
#[inline(always)]
unsafe fn finish_tile<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    panel: &Panel<'_, V::Scalar>,
    sums: &[[V; VECTORS]; ROWS],
    c: *mut V::Scalar,
) where
    V::Scalar: MulAdd,
{
    // SAFETY: the caller guarantees the instruction set and the sizes in `panel`.
    unsafe {
        if panel.columns == VECTORS * V::LANES {
            for row in 0..ROWS {
                for vector in 0..VECTORS {
                    let to = c.add(row * panel.c_row_stride + vector * V::LANES);
                    let sum = sums[row][vector];
                    if panel.accumulate { sum.add(V::load(to)).store(to) } else { sum.store(to) }
                }
            }
        } else {
            // 32 is the widest tile: two registers of sixteen lanes.
            let mut edge = [V::Scalar::ZERO; 32];
            for row in 0..ROWS {
                for vector in 0..VECTORS {
                    sums[row][vector].store(edge.as_mut_ptr().add(vector * V::LANES));
                }
                for column in 0..panel.columns.min(VECTORS * V::LANES) {
                    let to = c.add(row * panel.c_row_stride + column);
                    *to = if panel.accumulate { (*to).plus(edge[column]) } else { edge[column] };
                }
            }
        }
    }
}

macro_rules! microkernels {
    ($scalar:ty, portable: $portable:ty, $portable_rows:literal $(, $level:ident($features:literal): $register:ty, $rows:literal)*) => {
        impl HasMicrokernel for $scalar {
            #[inline]
            fn microkernel() -> Microkernel<Self> {
                #[allow(unused_variables)]
                let best = level();
                $(
                    #[cfg(target_arch = "x86_64")]
                    if best >= Level::$level {
                        #[target_feature(enable = $features)]
                        unsafe fn run(arguments: &Panel<'_, $scalar>) {
                            // SAFETY: the features are enabled here; the caller guarantees the rest.
                            unsafe { panel::<$register, $rows>(arguments) }
                        }
                        return Microkernel { rows: $rows, columns: 2 * <$register as Lanes>::LANES, run };
                    }
                )*
                unsafe fn run(arguments: &Panel<'_, $scalar>) {
                    // SAFETY: needs no feature; the caller guarantees the rest.
                    unsafe { panel::<$portable, $portable_rows>(arguments) }
                }
                Microkernel { rows: $portable_rows, columns: 2 * <$portable as Lanes>::LANES, run }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

// Sixteen registers hold six rows of two vectors and their operands; thirty-two hold twelve.
microkernels!(f32, portable: [f32; 4], 4, Avx512("avx512f,avx2,fma"): __m512, 12, Avx2("avx2,fma"): __m256, 6);
microkernels!(f64, portable: [f64; 2], 4, Avx512("avx512f,avx2,fma"): __m512d, 12, Avx2("avx2,fma"): __m256d, 6);
microkernels!(i32, portable: [i32; 4], 4, Avx2("avx2,fma"): [i32; 8], 4);
microkernels!(i64, portable: [i64; 2], 4, Avx2("avx2,fma"): [i64; 4], 4);
microkernels!(Complex<f32>, portable: [Complex<f32>; 2], 2, Avx2("avx2,fma"): [Complex<f32>; 4], 2);
microkernels!(Complex<f64>, portable: [Complex<f64>; 1], 2, Avx2("avx2,fma"): [Complex<f64>; 2], 2);

#[cfg(test)]
mod tests {
    use super::*;

    /// The twelve-row, sixteen-lane tile of AVX-512, in portable code so that every machine tests it.
    #[test]
    fn the_widest_tile_multiplies_every_edge() {
        for rows in [1, 2, 5, 11, 12, 13, 24, 31] {
            for columns in [1, 15, 16, 17, 31, 32] {
                for accumulate in [false, true] {
                    let depth = 7;
                    let a: Vec<f32> = (0..rows * depth).map(|i| (i % 13) as f32 - 6.0).collect();
                    let b: Vec<f32> = (0..depth * 32).map(|i| (i % 11) as f32 - 5.0).collect();
                    let mut c = vec![1.0f32; rows * 32];
                    let arguments = Panel {
                        rows,
                        segments: &[Segment { offset: 0, len: 3 }, Segment { offset: 3, len: depth - 3 }],
                        a: RowsOfA::Strided { data: a.as_ptr(), row_stride: depth, column_stride: 1 },
                        chosen: None,
                        b: b.as_ptr(),
                        b_row_stride: 32,
                        c: c.as_mut_ptr(),
                        c_row_stride: 32,
                        columns,
                        accumulate,
                    };
                    // SAFETY: portable code, and the vectors have the sizes that the panel says.
                    unsafe { panel::<[f32; 16], 12>(&arguments) };
                    for row in 0..rows {
                        for column in 0..32 {
                            let sum: f32 = (0..depth).map(|p| a[row * depth + p] * b[p * 32 + column]).sum();
                            let expected = if column >= columns { 1.0 } else { sum + f32::from(accumulate) };
                            assert_eq!(c[row * 32 + column], expected, "{rows} {columns} at {row},{column}");
                        }
                    }
                }
            }
        }
    }
}
