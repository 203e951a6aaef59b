//! Hashing of strings into buckets: StringToHashBucket, StringToHashBucketFast, StringToHashBucketStrong.

use super::fingerprint::fingerprint64;
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use siphasher::sip::SipHasher24;
use tensor::{Result, Status, StringElement, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "StringToHashBucket",
            inputs: &["string_tensor: string"],
            outputs: &["output: int64"],
            attrs: &["num_buckets: int >= 1"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| Bucket::create(builder, murmur64))],
    },
    Op {
        def: OpDef {
            name: "StringToHashBucketFast",
            inputs: &["input: string"],
            outputs: &["output: int64"],
            attrs: &["num_buckets: int >= 1"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| Bucket::create(builder, fingerprint64))],
    },
    Op {
        def: OpDef {
            name: "StringToHashBucketStrong",
            inputs: &["input: string"],
            outputs: &["output: int64"],
            attrs: &["num_buckets: int >= 1", "key: list(int)"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            let [low, high] = *builder.attrs().ints("key")? else {
                return Err(Status::invalid_argument("Key must have 2 elements"));
            };
            let hasher = SipHasher24::new_with_keys(low as u64, high as u64);
            Bucket::create(builder, move |text| hasher.hash(text))
        })],
    },
];

/// Returns a number below `num_buckets` for each string.
#[track_caller]
pub fn string_to_hash_bucket_fast(input: &Output, num_buckets: i64) -> Output {
    input.graph().op("StringToHashBucketFast").input(input).attr("num_buckets", num_buckets).output()
}

struct Bucket<F> {
    buckets: u64,
    hash: F,
}

impl<F: Fn(&[u8]) -> u64 + Send + Sync + 'static> Bucket<F> {
    fn create(builder: &KernelBuilder<'_>, hash: F) -> Result<BoxedKernel> {
        let buckets = builder.attrs().int("num_buckets")?;
        let buckets = u64::try_from(buckets)
            .ok()
            .filter(|&buckets| buckets > 0)
            .ok_or_else(|| Status::invalid_argument(format!("num_buckets must be at least 1, got {buckets}")))?;
        BoxedKernel::new(Bucket { buckets, hash })
    }
}

impl<F: Fn(&[u8]) -> u64 + Send + Sync> Kernel for Bucket<F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        const NS_PER_STRING: f64 = 20.0;
        let input = context.input(0)?;
        let strings: &[StringElement] = input.strings()?;
        let output = Tensor::build(input.shape().clone(), |out: &mut [i64]| {
            numeric::parallel::for_each_chunk_mut(out, 1, NS_PER_STRING, |first, out| {
                for (out, text) in out.iter_mut().zip(&strings[first..]) {
                    *out = ((self.hash)(text) % self.buckets) as i64;
                }
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// The hash of the oldest op: MurmurHash64A with TensorFlow's seed.
pub(crate) fn murmur64(bytes: &[u8]) -> u64 {
    murmur64_seeded(bytes, 0x00de_cafc_affe)
}

/// MurmurHash64A.
pub(crate) fn murmur64_seeded(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = word.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte)).wrapping_mul(MULTIPLIER);
        hash ^= (word ^ word >> SHIFT).wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        hash = hash.wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use graph::AttrMap;
    use tensor::{Shape, Tensor};

    fn texts() -> Vec<Vec<u8>> {
        let counted = |len: usize| (0..len).map(|byte| byte as u8).collect::<Vec<u8>>();
        let mut texts: Vec<Vec<u8>> =
            ["", "a", "abc", "abcd", "abcdefg", "12345678", "0123456789abcdef", "0123456789abcdefg"]
                .map(|text| text.as_bytes().to_vec())
                .to_vec();
        texts.extend([vec![b'x'; 32], vec![b'y'; 33], vec![b'z'; 64], vec![b'w'; 65]]);
        texts.extend([counted(128), counted(129), counted(768)]);
        texts
    }

    fn buckets(op: &str, attrs: AttrMap) -> Vec<i64> {
        let texts = texts();
        let input = Tensor::from_strings(Shape::vector(texts.len()), texts.into_iter().map(Into::into).collect());
        run_op(op, attrs, &[input.unwrap()]).unwrap()[0].as_slice::<i64>().unwrap().to_vec()
    }

    /// The numbers in these tests are TensorFlow's.
    #[test]
    fn fast() {
        let expected = [
            1936946117179621456,
            3694432073954588132,
            2640714258260161385,
            1897425971756105985,
            4341691227789030229,
            3430003927990384362,
            6105018409752412263,
            2800675501336285771,
            3678204687145032710,
            8610735037765521150,
            294799756062990872,
            3272011567211491969,
            2037963038260878803,
            5659797075620071487,
            2092031361577642528,
        ];
        assert_eq!(buckets("StringToHashBucketFast", attrs![("num_buckets", i64::MAX)]), expected);
        assert!(buckets("StringToHashBucketFast", attrs![("num_buckets", 10i64)]).iter().all(|&b| b < 10));
    }

    #[test]
    fn strong() {
        let expected = [
            443797209252341628,
            5158252350249958646,
            5862226954915230110,
            8889024970603298004,
            957890530879302020,
            6508726819379278012,
            2696401170605352037,
            2289318929677843346,
            5146077227804924603,
            202190614605344851,
            5018482603022759484,
            3260008274609568768,
            565548761847910730,
            3688994358476923181,
            8353750727030105292,
        ];
        let attrs = attrs![("num_buckets", i64::MAX), ("key", &[1i64, 2][..])];
        assert_eq!(buckets("StringToHashBucketStrong", attrs), expected);
        let attrs = attrs![("num_buckets", 5i64), ("key", &[1i64][..])];
        assert!(run_op("StringToHashBucketStrong", attrs, &[Tensor::string("a")]).is_err());
    }

    #[test]
    fn old() {
        let expected = [
            105434511174508092,
            2996632905371535868,
            5658311696057142710,
            5015987189207562374,
            2960345911509200449,
            421129128932463287,
            1490712428580208487,
            6397438232669942879,
            6405310422276382275,
            8080339974425546570,
            4772445071631715737,
            5364047093930533375,
            5351668349314526951,
            2161695753874938690,
            3554246068788479650,
        ];
        assert_eq!(buckets("StringToHashBucket", attrs![("num_buckets", i64::MAX)]), expected);
    }
}
