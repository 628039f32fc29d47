//! Circles of imports between the top-level modules of a crate. A module in a circle cannot be read,
//! tested or moved alone, so that each new one is a mistake unless it is listed here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::{
    Item, ItemMod, ItemUse, UseTree,
    visit::{self, Visit},
};

/// The circles of each crate, by its folder. Those that are left are of types that own each other:
/// a client and what it opens, a trace and its tensors.
const CIRCLES: &[(&str, &[&str])] = &[
    ("backends", &["accelerator cpu cuda embedded tpu vendor"]),
    (
        "backends/pjrt-sys",
        &["buffer client topology", "device memory"],
    ),
    ("core", &["backend sharding", "client erased observer"]),
    ("core/ir", &["graph infer op"]),
    ("kernels", &["conv element gemm"]),
    (
        "nn",
        &[
            "axis_roles check context hyperparameter low_rank mean ops rng shard_map special tensor trace",
            "custom_op grad",
            "init param",
            "jit lower",
        ],
    ),
    (
        "plugins/reference",
        &[
            "backend buffer compile executable serialized",
            "fast shards",
        ],
    ),
    (
        "plugins/sdk",
        &[
            "abi handle layout options promise status",
            "buffer client executable layouts program shardings topology transfer",
        ],
    ),
    (
        "telemetry",
        &["console device_clock metrics observer options"],
    ),
    ("train", &["fit trainer"]),
];

#[test]
fn no_new_circles_between_modules() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    for package in super::published() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap();
        let circles = Modules::read(&folder.join("src")).circles();
        if !circles.is_empty() {
            let name = folder.strip_prefix(workspace).unwrap();
            found.insert(name.to_str().unwrap().to_owned(), circles);
        }
    }
    let expected: BTreeMap<String, Vec<String>> = (CIRCLES.iter())
        .map(|(name, circles)| {
            let circles = circles.iter().map(|&circle| circle.to_owned());
            ((*name).to_owned(), circles.collect())
        })
        .collect();
    assert_eq!(
        found, expected,
        "circles of modules, by the folder of their crate"
    );
}

/// The top-level modules of a crate, and which of them each imports.
#[derive(Default)]
struct Modules {
    names: BTreeSet<String>,
    /// The module of each item that the crate exports at its root.
    exports: BTreeMap<String, String>,
    imports: BTreeMap<String, BTreeSet<String>>,
}

impl Modules {
    fn read(source: &Path) -> Self {
        let mut modules = Modules::default();
        let mut files = Vec::new();
        collect(source, &mut Vec::new(), &mut files);
        let root = files.iter().position(|(path, _)| path.is_empty());
        let (_, root) = files.remove(root.expect("a library has a root"));
        modules.names = files.iter().map(|(path, _)| path[0].clone()).collect();
        for item in &root.items {
            if let Item::Use(item) = item {
                for mut path in paths(&item.tree) {
                    path.retain(|part| part != "crate" && part != "self");
                    if let [module, .., name] = &path[..]
                        && modules.names.contains(module)
                    {
                        modules.exports.insert(name.clone(), module.clone());
                    }
                }
            }
        }
        for (path, file) in files {
            let mut paths = Paths {
                module: path.clone(),
                found: Vec::new(),
            };
            paths.visit_file(&file);
            for name in paths.found {
                let module = match modules.names.contains(&name) {
                    true => Some(&name),
                    false => modules.exports.get(&name),
                };
                if let Some(module) = module.filter(|module| **module != path[0]) {
                    let imports = modules.imports.entry(path[0].clone());
                    imports.or_default().insert(module.clone());
                }
            }
        }
        modules
    }

    /// All modules that `module` reaches by imports.
    fn reached(&self, module: &str) -> BTreeSet<&str> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
        while let Some(module) = open.pop() {
            for import in self.imports.get(module).into_iter().flatten() {
                if reached.insert(import.as_str()) {
                    open.push(import);
                }
            }
        }
        reached
    }

    /// The sets of modules that reach each other, as text.
    fn circles(&self) -> Vec<String> {
        let reached = |module: &String| (module.clone(), self.reached(module));
        let reached: BTreeMap<String, BTreeSet<&str>> = self.names.iter().map(reached).collect();
        let circles: BTreeSet<String> = (reached.iter())
            .filter(|(module, all)| all.contains(module.as_str()))
            .map(|(module, all)| {
                let circle = all
                    .iter()
                    .filter(|&&other| reached[other].contains(&**module));
                circle.copied().collect::<Vec<_>>().join(" ")
            })
            .collect();
        circles.into_iter().collect()
    }
}

/// Parses all modules below a folder that are files of their own, with their paths; that of the
/// library's root is empty. Tests and commands are left out.
fn collect(folder: &Path, path: &mut Vec<String>, files: &mut Vec<(Vec<String>, syn::File)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap().path();
        let name = entry.file_stem().unwrap().to_str().unwrap().to_owned();
        let is_command = path.is_empty() && ["bin", "main"].contains(&&*name);
        if is_command || name == "tests" {
            continue;
        }
        path.push(name);
        if entry.is_dir() {
            collect(&entry, path, files);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry).unwrap();
            let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{entry:?}: {error}"));
            let is_root = ["lib", "mod"].contains(&path.last().unwrap().as_str());
            files.push((path[..path.len() - usize::from(is_root)].to_vec(), file));
        }
        path.pop();
    }
}

/// All paths of a use declaration. That of a glob ends with its module.
fn paths(tree: &UseTree) -> Vec<Vec<String>> {
    match tree {
        UseTree::Path(path) => {
            let below = paths(&path.tree).into_iter();
            let first = path.ident.to_string();
            below
                .map(|path| [vec![first.clone()], path].concat())
                .collect()
        }
        UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        UseTree::Rename(rename) => vec![vec![rename.ident.to_string()]],
        UseTree::Glob(_) => vec![Vec::new()],
        UseTree::Group(group) => group.items.iter().flat_map(paths).collect(),
    }
}

/// The first names below the crate of all paths in a module.
struct Paths {
    module: Vec<String>,
    found: Vec<String>,
}

impl Paths {
    fn add(&mut self, path: &[String]) {
        let up = path.iter().take_while(|part| *part == "super").count();
        let mut whole = match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("super") => {
                let kept = self.module.len().saturating_sub(up);
                [&self.module[..kept], &path[up..]].concat()
            }
            _ => return,
        };
        self.found.extend(whole.drain(..).next());
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg")
                && matches!(attribute.parse_args::<syn::Path>(), Ok(path) if path.is_ident("test"))
        };
        if !item.attrs.iter().any(is_test) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for path in paths(&item.tree) {
            self.add(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.add(&parts);
        visit::visit_path(self, path);
    }
}
