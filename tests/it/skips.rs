//! No test is skipped without a line that says so: where one returns early, what it asked for has called `skip`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};

/// The calls of each function, and the early returns of each test.
#[derive(Default)]
struct Calls {
    file: String,
    /// The type whose methods are visited.
    of: Option<String>,
    within: Vec<String>,
    calls: BTreeMap<String, BTreeSet<String>>,
    /// The test, and the function on whose result it returns.
    returns: Vec<(String, String)>,
}

impl Calls {
    /// Names a function as `Type::function`, or as `function` if it has no type.
    fn name(&self, path: &syn::Path) -> String {
        let mut segments = path.segments.iter().rev().map(|segment| segment.ident.to_string());
        let name = segments.next().unwrap();
        let of = segments.next().filter(|of| of.starts_with(char::is_uppercase));
        let of = of.and_then(|of| if of == "Self" { self.of.clone() } else { Some(of) });
        of.map_or_else(|| name.clone(), |of| format!("{of}::{name}"))
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block, attributes: &[syn::Attribute]) {
        let name = signature.ident.to_string();
        let name = self.of.as_ref().map_or_else(|| name.clone(), |of| format!("{of}::{name}"));
        let is_test = attributes.iter().any(|attribute| attribute.path().segments.last().unwrap().ident == "test");
        if is_test {
            for statement in &body.stmts {
                let syn::Stmt::Local(syn::Local { init: Some(init), .. }) = statement else { continue };
                let Some((_, diverge)) = &init.diverge else { continue };
                let syn::Expr::Block(block) = &**diverge else { continue };
                // `return skip("...")` says it there.
                let ends = match block.block.stmts.last() {
                    Some(syn::Stmt::Expr(syn::Expr::Return(end), _)) => end.expr.is_none(),
                    _ => false,
                };
                let called = match &*init.expr {
                    syn::Expr::Call(call) => match &*call.func {
                        syn::Expr::Path(path) => self.name(&path.path),
                        _ => continue,
                    },
                    _ => "an expression".to_owned(),
                };
                if ends {
                    self.returns.push((format!("{}::{name}", self.file), called));
                }
            }
        }
        self.within.push(name);
        self.visit_block(body);
        self.within.pop();
    }

    fn called(&mut self, name: String) {
        if let Some(within) = self.within.last() {
            self.calls.entry(within.clone()).or_default().insert(name);
        }
    }
}

impl<'a> Visit<'a> for Calls {
    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if let syn::Type::Path(path) = &*item.self_ty {
            self.of = path.path.segments.last().map(|segment| segment.ident.to_string());
        }
        visit::visit_item_impl(self, item);
        self.of = None;
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig, &item.block, &item.attrs);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig, &item.block, &item.attrs);
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        self.called(self.name(&path.path));
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        self.called(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn tests_that_return_early_have_said_why() {
    let mut calls = Calls::default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut left = vec![root.join("src"), root.join("tests")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            calls.file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            calls.visit_file(&syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap());
        }
    }
    let mut say: BTreeSet<String> = ["skip", "report_skip"].map(str::to_owned).into();
    loop {
        let more: Vec<_> = calls.calls.iter().filter(|(_, called)| !called.is_disjoint(&say)).collect();
        let known = say.len();
        say.extend(more.into_iter().map(|(name, _)| name.clone()));
        if say.len() == known {
            break;
        }
    }
    assert!(calls.returns.len() > 50, "only {} early returns were found", calls.returns.len());
    let silent: Vec<_> = calls.returns.iter().filter(|(_, called)| !say.contains(called)).collect();
    assert!(silent.is_empty(), "these return where nothing has called `skip`: {silent:#?}");
}
