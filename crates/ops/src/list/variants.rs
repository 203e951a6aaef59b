//! Sums and zeros of variants: lists and optionals, also nested. The gradients of loops and conditionals need them.

use super::tensor_list::TensorList;
use crate::dataset::{new_optional, optional_of};
use tensor::{DType, Result, Status, Tensor, Variant};

/// The most nested variants. Variants made by ops are no deeper than their graph.
const NESTING_MAX: usize = 64;

/// Adds two tensors that aren't variants.
pub(crate) type Add = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Returns zeros in the form of another variant.
pub(crate) fn zeros_like_variant(variant: &Variant) -> Result<Variant> {
    zeros_within(variant, 0)
}

/// Returns the sum of two variants of the same kind, whose tensors `add` adds.
pub(crate) fn added_variants(a: &Variant, b: &Variant, add: Add) -> Result<Variant> {
    added_within(a, b, add, 0)
}

fn check_nesting(depth: usize) -> Result<()> {
    if depth < NESTING_MAX {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("more than {NESTING_MAX} variants lie within each other")))
}

fn zeros_within(variant: &Variant, depth: usize) -> Result<Variant> {
    check_nesting(depth)?;
    if matches!(variant, Variant::Empty) {
        return Ok(Variant::Empty);
    }
    let zeros = |tensor: &Tensor| match tensor.dtype() {
        DType::Variant => {
            let zeros = tensor.variants()?.iter().map(|inner| zeros_within(inner, depth + 1)).collect::<Result<_>>()?;
            Tensor::from_variants(tensor.shape().clone(), zeros)
        }
        dtype => Tensor::zeros(dtype, tensor.shape().clone()),
    };
    if let Some(optional) = optional_of(variant) {
        let components = optional?;
        let zeros = components.map(|components| components.iter().map(zeros).collect::<Result<_>>()).transpose()?;
        return Ok(new_optional(zeros));
    }
    let Ok(list) = TensorList::of_variant(variant) else {
        return Err(Status::invalid_argument(format!(
            "No unary variant unary_op function found for op ZEROS_LIKE Variant type_name: {} for device type: CPU",
            variant.type_name()
        )));
    };
    let elements =
        list.elements.iter().map(|element| element.as_ref().map(zeros).transpose()).collect::<Result<_>>()?;
    Ok(TensorList { elements, ..(*list).clone() }.into_variant())
}

fn added_within(a: &Variant, b: &Variant, add: Add, depth: usize) -> Result<Variant> {
    check_nesting(depth)?;
    if a.type_name() != b.type_name() {
        return Err(Status::invalid_argument(format!(
            "BinaryOpVariants: Variants a and b have different type ids.  Type names: '{}' vs. '{}'",
            a.type_name(),
            b.type_name()
        )));
    }
    let sum = |a: &Tensor, b: &Tensor| {
        if a.dtype() != DType::Variant || b.dtype() != DType::Variant {
            return add(a, b);
        }
        if a.shape() != b.shape() {
            return Err(Status::invalid_argument(format!(
                "Trying to add two tensors with incompatible element shapes. One is {} and the other is {}",
                a.shape(),
                b.shape()
            )));
        }
        let pairs = a.variants()?.iter().zip(b.variants()?);
        let sums = pairs.map(|(a, b)| added_within(a, b, add, depth + 1)).collect::<Result<_>>()?;
        Tensor::from_variants(a.shape().clone(), sums)
    };
    match (optional_of(a), optional_of(b)) {
        (Some(a), Some(b)) => added_optionals(a?, b?, &sum),
        _ => match (TensorList::of_variant(a), TensorList::of_variant(b)) {
            (Ok(a), Ok(b)) => added_lists(&a, &b, &sum),
            _ => Err(Status::invalid_argument(format!(
                "No binary variant binary_op function found for op ADD Variant type_name: '{}' for device type: CPU",
                a.type_name()
            ))),
        },
    }
}

type Sum<'a> = &'a dyn Fn(&Tensor, &Tensor) -> Result<Tensor>;

fn added_optionals(a: Option<Vec<Tensor>>, b: Option<Vec<Tensor>>, sum: Sum<'_>) -> Result<Variant> {
    match (a, b) {
        (None, None) => Ok(new_optional(None)),
        (Some(a), Some(b)) if a.len() == b.len() => {
            let sums = a.iter().zip(&b).map(|(a, b)| sum(a, b)).collect::<Result<_>>()?;
            Ok(new_optional(Some(sums)))
        }
        (Some(_), Some(_)) => {
            Err(Status::invalid_argument("Cannot add optionals because they have different numbers of components."))
        }
        _ => Err(Status::invalid_argument("Cannot add optionals because one has a value and the other doesn't.")),
    }
}

fn added_lists(a: &TensorList, b: &TensorList, sum: Sum<'_>) -> Result<Variant> {
    if a.dtype != b.dtype {
        return Err(Status::invalid_argument("Trying to add two lists of tensors of different dtypes."));
    }
    if a.elements.len() != b.elements.len() {
        return Err(Status::invalid_argument(format!(
            "Trying to add two lists of tensors with different lengths. One is {} and the other is {}",
            a.elements.len(),
            b.elements.len()
        )));
    }
    let element_shape = a.element_shape.merge(&b.element_shape).map_err(|_| {
        Status::invalid_argument(format!(
            "Trying to add two lists of tensors with incompatible element shapes. One is {} and the other is {}",
            a.element_shape, b.element_shape
        ))
    })?;
    let sum = |(a, b): (&Option<Tensor>, &Option<Tensor>)| match (a, b) {
        (Some(a), Some(b)) => sum(a, b).map(Some),
        (one, other) => Ok(one.clone().or_else(|| other.clone())),
    };
    let elements = a.elements.iter().zip(&b.elements).map(sum).collect::<Result<_>>()?;
    Ok(TensorList { element_shape, elements, ..a.clone() }.into_variant())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::PartialShape;

    fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
        Ok(Tensor::scalar(a.to_scalar::<f32>()? + b.to_scalar::<f32>()?))
    }

    fn list_of(element: Variant) -> Variant {
        TensorList::new(DType::Variant, PartialShape::unknown(), vec![Some(Tensor::variant(element)), None])
            .into_variant()
    }

    fn optional_in(list: &Variant) -> f32 {
        let list = TensorList::of_variant(list).unwrap();
        let inner = list.elements[0].as_ref().unwrap().variants().unwrap()[0].clone();
        optional_of(&inner).unwrap().unwrap().unwrap()[0].to_scalar().unwrap()
    }

    #[test]
    fn optionals_within_lists() {
        let one = |value: f32| list_of(new_optional(Some(vec![Tensor::scalar(value)])));
        assert_eq!(optional_in(&added_variants(&one(2.0), &one(3.0), add).unwrap()), 5.0);
        assert_eq!(optional_in(&zeros_like_variant(&one(2.0)).unwrap()), 0.0);
        let none = list_of(new_optional(None));
        assert!(added_variants(&one(1.0), &none, add).unwrap_err().message().contains("one has a value"));
        let other = added_variants(&one(1.0), &new_optional(None), add).unwrap_err();
        assert!(other.message().contains("different type ids"), "{other}");
    }

    #[test]
    fn nesting_has_a_bound() {
        let mut deep = new_optional(None);
        for _ in 0..NESTING_MAX {
            deep = new_optional(Some(vec![Tensor::variant(deep)]));
        }
        assert!(zeros_like_variant(&deep).is_err());
        assert!(added_variants(&deep, &deep, add).is_err());
    }
}
