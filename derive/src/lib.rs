//! `#[derive(Module)]`: generates an `impl Module` whose `visit` passes each field to a visitor
//! under its name.
//!
//! The trait decides what a field is, not the macro: tensors, layers, lists and options of them are
//! visited, numbers and text are ignored. The macro never inspects types, so aliases and generics
//! work.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Index, Result, parse_macro_input, parse_quote};

/// Implements `Module` for a struct: each field is visited under its name, or under its number in a
/// tuple struct. Tensors and modules are visited; numbers, bools and text are ignored;
/// `#[module(skip)]` excludes a field of any other type.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(mut input: DeriveInput) -> Result<TokenStream> {
    if let Some(attr) = input.attrs.iter().find(|a| a.path().is_ident("module")) {
        return Err(Error::new_spanned(
            attr,
            "`#[module(…)]` belongs on a field, not on the struct",
        ));
    }
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "`Module` can be derived for structs; for an enum or a union, write `impl Module` and \
             call `visit` of what is inside",
        ));
    };
    let shown = fields(&data.fields)?;
    let bound: syn::TypeParamBound = parse_quote!(::picograd::nn::Module);
    for param in input.generics.type_params_mut() {
        param.bounds.push(bound.clone());
    }
    let name = &input.ident;
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    let visitor = format_ident!("visitor");
    // The span of the field's type, so that the compiler points there if it is not a module.
    let calls = shown.iter().map(
        |(field, place, span)| quote_spanned! { *span=> #visitor.field(#field, &self.#place); },
    );
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::picograd::nn::Module for #name #arguments #conditions {
            #[allow(unused_variables)]
            fn visit(&self, #visitor: &mut ::picograd::nn::Visitor<'_>) {
                #(#calls)*
            }
        }
    })
}

/// Name, accessor and type span of each visited field.
fn fields(fields: &Fields) -> Result<Vec<(String, TokenStream, Span)>> {
    let mut shown = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        if skipped(field)? {
            continue;
        }
        let (name, place) = match &field.ident {
            // `r#type` is `type` in a state dict.
            Some(name) => (name.to_string().trim_start_matches("r#").to_string(), quote!(#name)),
            None => {
                let place = Index::from(i);
                (i.to_string(), quote!(#place))
            }
        };
        shown.push((name, place, field.ty.span()));
    }
    Ok(shown)
}

fn skipped(field: &Field) -> Result<bool> {
    let mut skip = false;
    for attr in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                skip = true;
                return Ok(());
            }
            Err(meta.error("expected `#[module(skip)]`"))
        })?;
    }
    Ok(skip)
}
