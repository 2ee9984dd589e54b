//! The modules of a crate, and the file that each import leads to.

use std::collections::{BTreeMap, BTreeSet};

use super::house::House;
use super::imports::{Body, Declared, Use, read};

/// The modules that can be reached from one crate root, such as `src/lib.rs`.
pub(super) struct ModuleTree {
    /// Modules of the tree. The first module is the root.
    modules: Vec<Module>,
    /// Paths of the files from the workspace root; a module names its file by the index in this list.
    pub(super) files: Vec<String>,
}

struct Module {
    parent: Option<usize>,
    file: usize,
    children: BTreeMap<String, usize>,
    body: Body,
}

/// Module or item that a path in code leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item of the module with this number.
    Item(usize),
}

/// Names whose lookup has begun and not ended, each with the number of the module in which it is looked up. A lookup
/// that comes to such a name again finds nothing, so that imports in a circle come to an end.
type Open = BTreeSet<(usize, String)>;

/// Imports between the files of a crate: for each pair of an importing and an imported file, the line of the first
/// import.
pub(super) type Edges = BTreeMap<(usize, usize), usize>;

impl ModuleTree {
    /// Follows the `mod` lines from `root`, which is the path of a file of `house`.
    pub(super) fn read(house: &House, root: &str) -> Self {
        let mut tree = Self { modules: Vec::new(), files: Vec::new() };
        tree.add_file(house, root, None, true);
        tree
    }

    fn add_file(&mut self, house: &House, path: &str, parent: Option<usize>, is_root: bool) -> Option<usize> {
        let text = &house.files.iter().find(|file| file.path == path)?.text;
        self.files.push(path.to_owned());
        let file = self.files.len() - 1;
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = name.trim_end_matches(".rs");
        let inside = if is_root || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") };
        Some(self.add_module(house, read(text), parent, file, (folder, &inside)))
    }

    /// Adds a module. `folders` are the folder of the file, from which `#[path]` counts, and the folder of its child
    /// modules.
    fn add_module(
        &mut self,
        house: &House,
        mut body: Body,
        parent: Option<usize>,
        file: usize,
        (folder, inside): (&str, &str),
    ) -> usize {
        let declared = std::mem::take(&mut body.modules);
        let module = self.modules.len();
        self.modules.push(Module { parent, file, children: BTreeMap::new(), body });
        for Declared { name, path, inline, .. } in declared {
            let child = match (inline, path) {
                (Some(body), _) => {
                    let inner = format!("{inside}/{name}");
                    Some(self.add_module(house, body, Some(module), file, (&inner, &inner)))
                }
                (None, Some(path)) => self.add_file(house, &joined(folder, &path), Some(module), false),
                (None, None) => self
                    .add_file(house, &format!("{inside}/{name}.rs"), Some(module), false)
                    .or_else(|| self.add_file(house, &format!("{inside}/{name}/mod.rs"), Some(module), false)),
            };
            if let Some(child) = child {
                self.modules[module].children.entry(name).or_insert(child);
            }
        }
        module
    }

    /// Returns the imports between files. Leaves out imports between a file and the modules that contain it.
    pub(super) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (idx, module) in self.modules.iter().enumerate() {
            for (file, line) in self.imports_of(idx) {
                if !self.is_around(module.file, file) && !self.is_around(file, module.file) {
                    let first = edges.entry((module.file, file)).or_insert(line);
                    *first = line.min(*first);
                }
            }
        }
        edges
    }

    /// Lists the files whose items the module with the number `idx` imports or names by a path, each with the line in
    /// the module.
    fn imports_of(&self, idx: usize) -> Vec<(usize, usize)> {
        let body = &self.modules[idx].body;
        let mut found = Vec::new();
        let mut add = |target, line| {
            // An imported module is not used yet: the paths that go through it lead to the files of its items.
            if let Some(Target::Item(module)) = target {
                let module: usize = module;
                found.push((self.modules[module].file, line));
            }
        };
        for Use { path, glob, line, .. } in &body.uses {
            let target = self.resolve(idx, path, *glob, &mut Open::new());
            match target {
                Some(Target::Module(target)) if *glob => {
                    for (word, line) in &body.words {
                        add(self.member(target, word, false, &mut Open::new()), *line);
                    }
                    for (path, line) in &body.paths {
                        add(self.through(target, path, &mut Open::new()), *line);
                    }
                }
                _ => add(target, *line),
            }
        }
        for (path, line) in &body.paths {
            add(self.resolve(idx, path, false, &mut Open::new()), *line);
        }
        found
    }

    /// Finds the module or the item that `path` leads to, as written in the module with the number `from`; `None` for a
    /// path into another crate.
    ///
    /// `module` selects a module where an item has the same name. `open` are the names that are being looked up, so
    /// that imports of each other come to an end.
    fn resolve(&self, from: usize, path: &[String], module: bool, open: &mut Open) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            "Self" => return None,
            name => self.member(from, name, module || !rest.is_empty(), open)?,
        };
        while let (Target::Module(inside), Some((name, after))) = (at, rest.split_first()) {
            at = match name.as_str() {
                "super" => Target::Module(self.modules[inside].parent?),
                // A name that is not found is made by a macro of that module, or comes from another crate.
                name => self.member(inside, name, module || !after.is_empty(), open).or_else(|| {
                    let foreign = self.modules[inside].body.uses.iter().any(|used| used.name.as_deref() == Some(name));
                    (!foreign).then_some(Target::Item(inside))
                })?,
            };
            rest = after;
        }
        Some(at)
    }

    /// Finds the module or the item that `path` leads to, if its first name is a member of the module with the number
    /// `inside`; otherwise `None`. Serves imports that end in `*`.
    fn through(&self, inside: usize, path: &[String], open: &mut Open) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        match self.member(inside, first, true, open)? {
            Target::Module(module) if !rest.is_empty() => {
                let path: Vec<String> = std::iter::once("self".to_owned()).chain(rest.iter().cloned()).collect();
                self.resolve(module, &path, false, open)
            }
            target => Some(target),
        }
    }

    /// Resolves `name` in the module with the number `inside`: a child module, an item, or the target of an import.
    /// `module` selects a module where an item has the same name; `open` are the names that are being looked up.
    fn member(&self, inside: usize, name: &str, module: bool, open: &mut Open) -> Option<Target> {
        if !open.insert((inside, name.to_owned())) {
            return None;
        }
        let here = &self.modules[inside];
        let child = here.children.get(name).map(|child| Target::Module(*child));
        let item = here.body.items.contains(name).then_some(Target::Item(inside));
        let found = if module { child.or(item) } else { item };
        let found = found.or_else(|| {
            let mut imports = here.body.uses.iter().filter(|used| used.name.as_deref() == Some(name));
            imports.find_map(|used| self.resolve(inside, &used.path, module, open))
        });
        let found = found.or(child).or_else(|| {
            let mut globs = here.body.uses.iter().filter(|used| used.glob);
            globs.find_map(|used| match self.resolve(inside, &used.path, true, open)? {
                Target::Module(target) => self.member(target, name, module, open),
                Target::Item(_) => None,
            })
        });
        open.remove(&(inside, name.to_owned()));
        found
    }

    /// Returns whether file `outer` holds the module of file `inner`, or a module that contains it.
    fn is_around(&self, outer: usize, inner: usize) -> bool {
        let mut module = self.modules.iter().position(|module| module.file == inner);
        while let Some(at) = module {
            if self.modules[at].file == outer {
                return true;
            }
            module = self.modules[at].parent;
        }
        false
    }
}

/// Joins `folder` and `path`, and resolves `..`.
pub(super) fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => _ = parts.pop(),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}
