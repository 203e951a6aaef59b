//! The attribute [`macro@each_level`], which compiles a loop once for each level of the crate `cpu`.
//!
//! The `multiversion` crate does the same, but detects the processor's features itself in every function. It cannot be told to
//! use a lower level, which `FERROFLOW_CPU` and the tests of every level need.

use proc_macro::TokenStream;
use proc_macro2::{Ident, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::{Error, FnArg, GenericParam, ItemFn, Pat, parse_macro_input};

/// The features of `Level::Avx2`; the crate `cpu` detects exactly these.
const AVX2: &str = "avx2,fma,bmi1,bmi2,f16c";

/// The features of `Level::Avx512`.
const AVX512: &str = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c";

/// Compiles a function for every level of the crate `cpu`, and calls the version for the level in use.
///
/// The function must be simple: its parameters are names, not patterns, and its generic parameters are all explicit.
#[proc_macro_attribute]
pub fn each_level(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        return Error::new(proc_macro2::Span::call_site(), "each_level takes no arguments").to_compile_error().into();
    }
    let function = parse_macro_input!(item as ItemFn);
    expand(&function).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(function: &ItemFn) -> syn::Result<Tokens> {
    let ItemFn { attrs, vis, sig, block } = function;
    let arguments = argument_names(function)?;
    let generics: Vec<&Ident> = sig
        .generics
        .params
        .iter()
        .filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(&parameter.ident),
            GenericParam::Const(parameter) => Some(&parameter.ident),
            GenericParam::Lifetime(_) => None,
        })
        .collect();
    let [avx512, avx2, baseline] = ["avx512", "avx2", "baseline"].map(|level| format_ident!("{}_{level}", sig.ident));
    let [avx512_sig, avx2_sig, baseline_sig] = [&avx512, &avx2, &baseline].map(|name| {
        let mut sig = sig.clone();
        sig.ident = name.clone();
        sig
    });
    Ok(quote! {
        #(#attrs)*
        #vis #sig {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = #AVX512)]
            #avx512_sig #block

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = #AVX2)]
            #avx2_sig #block

            #[inline(always)]
            #baseline_sig #block

            #[cfg(target_arch = "x86_64")]
            // SAFETY: the processor has the level in use, and the caller guarantees the rest.
            match ::cpu::level() {
                ::cpu::Level::Avx512 => return unsafe { #avx512::<#(#generics),*>(#(#arguments),*) },
                ::cpu::Level::Avx2 => return unsafe { #avx2::<#(#generics),*>(#(#arguments),*) },
                ::cpu::Level::Baseline => {}
            }
            // SAFETY: it needs no feature, and the caller guarantees the rest.
            #[allow(unused_unsafe)]
            unsafe { #baseline::<#(#generics),*>(#(#arguments),*) }
        }
    })
}

fn argument_names(function: &ItemFn) -> syn::Result<Vec<&Ident>> {
    let arguments = function.sig.inputs.iter();
    arguments
        .map(|argument| match argument {
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(name) if name.mutability.is_none() => Ok(&name.ident),
                other => Err(Error::new_spanned(other, "each_level needs a plain name here")),
            },
            FnArg::Receiver(receiver) => Err(Error::new_spanned(receiver, "each_level takes no methods")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: &str) -> Result<String, String> {
        let function: ItemFn = syn::parse_str(source).expect("a function");
        expand(&function).map(|tokens| tokens.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_function_gets_a_version_for_each_level() {
        let text = expanded("fn add<'a, T: Copy, const N: usize>(a: &'a [T], n: [u8; N]) -> u8 { 0 }").expect("valid");
        assert!(text.contains("fn add_avx512 <"), "{text}");
        assert!(text.contains("fn add_avx2 <") && text.contains("fn add_baseline <"), "{text}");
        assert!(text.contains("add_avx2 :: < T , N > (a , n)"), "{text}");
    }

    #[test]
    fn patterns_and_methods_are_refused() {
        assert!(expanded("fn add((a, b): (u8, u8)) {}").is_err_and(|message| message.contains("plain name")));
        assert!(expanded("fn add(mut a: u8) {}").is_err_and(|message| message.contains("plain name")));
        assert!(expanded("fn add(&self) {}").is_err_and(|message| message.contains("no methods")));
    }
}
