//! The structure of the source as tests: every file is parsed, and its imports are followed to where a name is defined.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

type Module = Vec<String>;

struct Source {
    file: String,
    module: Module,
    syntax: syn::File,
}

/// Parses every file of `src` and `runner` that is not only for tests.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut left = vec![root.join("src"), root.join("runner")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| ending == "rs") && !is_root_of_package(&path, &root.join("src"))
        {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let syntax = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
            found.push(Source { module: module_of(&file), file, syntax });
        }
    }
    let for_tests = modules_for_tests(&found);
    found.retain(|source| !for_tests.iter().any(|module| source.module.starts_with(module)));
    found.sort_by(|one, other| one.file.cmp(&other.file));
    found
}

/// Returns whether a file declares the room of a package beside it, as `src/engine/lib.rs` does.
fn is_root_of_package(path: &Path, sources: &Path) -> bool {
    path.ends_with("lib.rs") && path.parent() != Some(sources)
}

/// Returns the module that a file holds: `src/engine/store/mod.rs` is `engine::store`.
fn module_of(file: &str) -> Module {
    let file = file.strip_prefix("src/").unwrap_or(file);
    let path = PathBuf::from(file).with_extension("");
    let mut module: Module = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if matches!(module.last().unwrap().as_str(), "mod" | "lib") || file == "runner/main.rs" {
        module.pop();
    }
    module
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
        }
        syn::Meta::Path(path) => path.segments.last().is_some_and(|last| last.ident == "test"),
        _ => false,
    })
}

/// Finds the modules that are declared behind `#[cfg(test)]`.
fn modules_for_tests(sources: &[Source]) -> Vec<Module> {
    let mut found = Vec::new();
    for source in sources {
        for item in &source.syntax.items {
            if let syn::Item::Mod(module) = item
                && is_for_tests(&module.attrs)
            {
                found.push([&source.module[..], &[module.ident.to_string()]].concat());
            }
        }
    }
    found
}

/// The names of a use tree, each with its whole path.
fn leaves(tree: &syn::UseTree, before: &mut Module, found: &mut Vec<(Module, String)>) {
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, found);
            before.pop();
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            found.push((before.clone(), before.last().unwrap().clone()));
        }
        syn::UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push(([&before[..], std::slice::from_ref(&name)].concat(), name));
        }
        syn::UseTree::Rename(name) => {
            found.push(([&before[..], &[name.ident.to_string()]].concat(), name.rename.to_string()));
        }
        syn::UseTree::Glob(_) => found.push((before.clone(), "*".to_owned())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, found)),
    }
}

/// Names of its own crate in a file: paths of imports and of code, without tests.
#[derive(Default)]
struct Named {
    imports: Vec<(Module, String)>,
    paths: Vec<Module>,
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        leaves(&item.tree, &mut Vec::new(), &mut self.imports);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

struct Tree {
    sources: Vec<Source>,
    /// Module to its file.
    files: BTreeMap<Module, usize>,
    /// By file: what is imported under which name.
    imported: Vec<BTreeMap<String, Module>>,
    named: Vec<Named>,
}

impl Tree {
    fn read() -> Self {
        let sources = sources();
        let files = sources.iter().enumerate().map(|(at, source)| (source.module.clone(), at)).collect();
        let mut tree = Self { sources, files, imported: Vec::new(), named: Vec::new() };
        for source in &tree.sources {
            let mut named = Named::default();
            named.visit_file(&source.syntax);
            tree.named.push(named);
        }
        for (source, named) in tree.sources.iter().zip(&tree.named) {
            let imports = named
                .imports
                .iter()
                .filter_map(|(path, name)| Some((name.clone(), tree.absolute(&source.module, path)?)));
            tree.imported.push(imports.collect());
        }
        tree
    }

    /// Makes a path absolute; none for other crates.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let program = |module: &Module| matches!(module.first().map(String::as_str), Some("main" | "runner"));
        let mut base = match path.first()?.as_str() {
            "crate" if program(module) => module[..1].to_vec(),
            name if name == "crate" || name.starts_with("foldspace") => Vec::new(),
            "self" => module.clone(),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let kept = module.len().checked_sub(ups)?;
                return Some([&module[..kept], &path[ups..]].concat());
            }
            _ => {
                let child = [&module[..], &path[..1]].concat();
                return self.files.contains_key(&child).then(|| [&module[..], path].concat());
            }
        };
        base.extend_from_slice(&path[1..]);
        Some(base)
    }

    /// Follows a path through facades to the file that defines what it names.
    fn defined_in(&self, path: &Module) -> Option<usize> {
        let mut path = path.clone();
        for _ in 0..16 {
            let (module, rest) =
                (0..=path.len()).rev().find_map(|n| Some((*self.files.get(&path[..n])?, &path[n..])))?;
            match rest.first().and_then(|name| self.imported[module].get(name)) {
                Some(next) => path = [&next[..], &rest[1..]].concat(),
                None => return Some(module),
            }
        }
        None
    }

    /// Returns which file names what of which other.
    fn arrows(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut arrows = BTreeMap::<usize, BTreeSet<usize>>::new();
        for (at, (source, named)) in self.sources.iter().zip(&self.named).enumerate() {
            // Re-exports of a facade are followed by those that import them.
            let paths = named.imports.iter().map(|(path, _)| path).chain(&named.paths);
            for path in paths.filter_map(|path| self.absolute(&source.module, path)) {
                arrows.entry(at).or_default().extend(self.defined_in(&path).filter(|to| *to != at));
            }
        }
        arrows
    }
}

fn check(found: BTreeSet<String>) {
    assert!(found.is_empty(), "mend these: {found:#?}");
}

#[test]
fn files_make_no_circle() {
    let tree = Tree::read();
    let arrows = tree.arrows();
    let is_facade = |at: &usize| tree.sources[*at].file.ends_with("/mod.rs");
    let reached = |from: usize| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(at) = left.pop() {
            let next = arrows.get(&at).into_iter().flatten().filter(|to| !is_facade(to));
            left.extend(next.filter(|to| seen.insert(**to)));
        }
        seen
    };
    let all: Vec<_> = (0..tree.sources.len()).map(reached).collect();
    let mut circles = BTreeSet::new();
    for at in (0..tree.sources.len()).filter(|at| !is_facade(at) && all[*at].contains(at)) {
        let members = all[at].iter().filter(|other| all[**other].contains(&at));
        let names: Vec<_> = members.map(|at| tree.sources[*at].file.as_str()).collect();
        circles.insert(names.join(" "));
    }
    check(circles);
}

#[derive(Default)]
struct Types(Vec<String>);

impl<'ast> Visit<'ast> for Types {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Mod(module) if is_for_tests(&module.attrs) => return,
            syn::Item::Struct(item) if !is_for_tests(&item.attrs) => self.0.push(item.ident.to_string()),
            syn::Item::Enum(item) if !is_for_tests(&item.attrs) => self.0.push(item.ident.to_string()),
            syn::Item::Trait(item) => self.0.push(item.ident.to_string()),
            syn::Item::Type(item) => self.0.push(item.ident.to_string()),
            syn::Item::Fn(item) if is_for_tests(&item.attrs) => return,
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

#[test]
fn every_type_has_a_name_of_its_own() {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for source in sources() {
        let mut types = Types::default();
        types.visit_file(&source.syntax);
        for name in types.0 {
            places.entry(name).or_default().push(source.file.clone());
        }
    }
    let twice = places.into_iter().filter(|(_, files)| files.len() > 1);
    check(twice.map(|(name, files)| format!("{name} {}", files.join(" "))).collect());
}

const ODD: [&str; 6] = ["What", "Who", "Whether", "How", "Where", "Why"];

/// Counts the paragraphs of documentation that begin with a question word.
#[derive(Default)]
struct Docs {
    odd: usize,
    follows: bool,
}

impl<'ast> Visit<'ast> for Docs {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::NameValue(value) = &attribute.meta
            && value.path.is_ident("doc")
            && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &value.value
        {
            let text = text.value();
            let first = text.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
            if !self.follows && first.is_some_and(|first| ODD.contains(&first)) {
                self.odd += 1;
            }
            self.follows = !text.trim().is_empty();
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.follows = false;
        if !matches!(item, syn::Item::Mod(module) if is_for_tests(&module.attrs)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.follows = false;
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.follows = false;
        visit::visit_variant(self, variant);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        self.follows = false;
        visit::visit_impl_item(self, item);
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        self.follows = false;
        visit::visit_trait_item(self, item);
    }
}

#[test]
fn documentation_begins_with_a_verb_or_a_noun() {
    let is_odd = |source: &Source| {
        let mut docs = Docs::default();
        docs.visit_file(&source.syntax);
        docs.odd > 0
    };
    check(sources().into_iter().filter(is_odd).map(|source| source.file).collect());
}

/// The texts of the library's rooms: strings, messages of errors, and what macros format.
#[derive(Default)]
struct Texts(Vec<String>);

impl<'ast> Visit<'ast> for Texts {
    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.0.push(text.value());
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.0.push(call.tokens.to_string());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta
            && list.path.is_ident("error")
        {
            self.0.push(list.tokens.to_string());
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }
}

const LIBRARY: [&str; 6] = ["engine", "reducers", "backends", "tools", "hub", "view"];

/// Files that name options of other programs.
const OTHER_PROGRAMS: [&str; 8] = [
    "src/backends/compliance/commands.rs",
    "src/backends/podman/engine/mod.rs",
    "src/backends/podman/engine/podman_address.rs",
    "src/tools/policy/dangers.rs",
    "src/tools/policy/effect_requests.rs",
    "src/tools/policy/effects.rs",
    "src/tools/policy/wrappers.rs",
    "src/view/patch.rs",
];

/// Returns the command or option of the command line that a text for a person names.
fn of_command_line(text: &str, may_have_options: bool) -> Option<&str> {
    let begins = |at: usize| text[..at].chars().next_back().is_some_and(|before| " (`".contains(before));
    let is_option = |at: usize| begins(at) && text[at + 2..].starts_with(|c: char| c.is_ascii_lowercase());
    let command = text.find("`foldspace ");
    let option = text.match_indices("--").map(|(at, _)| at).find(|at| !may_have_options && is_option(*at));
    command.or(option).map(|at| &text[at..])
}

#[test]
fn library_names_no_command_line() {
    assert!(of_command_line("`foldspace log` shows it", true).is_some());
    assert!(of_command_line("choose a directory (--data)", false).is_some());
    assert!(of_command_line("use --data", false).is_some() && of_command_line("a -- b, --", false).is_none());
    let mut found = BTreeSet::new();
    let is_checked = |source: &&Source| {
        let room = source.module.first().map_or("", String::as_str);
        LIBRARY.contains(&room) || (matches!(room, "http" | "mcp") && source.module.ends_with(&["advice".to_owned()]))
    };
    for source in sources().iter().filter(is_checked) {
        let mut texts = Texts::default();
        texts.visit_file(&source.syntax);
        let is_of_others = OTHER_PROGRAMS.contains(&source.file.as_str());
        let named = texts.0.iter().filter_map(|text| of_command_line(text, is_of_others));
        found.extend(named.map(|named| format!("{}: {}", source.file, named.chars().take(60).collect::<String>())));
    }
    check(found);
}
