//! Loading modules and finding kernels in them.

use std::collections::BTreeMap;

use crate::abi::{Handle, Image};
use crate::errors::{Answer, INVALID_PTX, NO_BINARY_FOR_GPU, NOT_FOUND, UNSUPPORTED_PTX_VERSION};
use crate::kernels::{Function, Module};
use crate::machine::Machine;
use crate::ptx::{Entry, PtxModule};
use crate::ptxas::{Compiled, compile, keep_text};

impl Machine {
    /// Loads a module on the current GPU.
    pub(crate) fn load_module(&mut self, image: Image) -> Answer<Handle> {
        let gpu = self.current()?;
        let text = image.read()?;
        let loaded = self.prepare(gpu, text.as_deref());
        let loaded = loaded.and_then(|(entries, compiled)| {
            let stack = compiled.kernels.iter().map(|(_, resources)| resources.stack).max().unwrap_or(0);
            let stacks = if self.scenario.holds_stacks { u64::from(stack) * self.gpus[gpu].threads() } else { 0 };
            let change = self.gpus[gpu].books.load_code(compiled.code, stacks)?;
            self.trace(gpu, &change);
            Ok((entries, compiled, stack))
        });
        let counts = &mut self.gpus[gpu].counts;
        let (entries, compiled, stack) = loaded.inspect_err(|_| counts.n_refused_modules += 1)?;
        counts.n_modules += 1;
        counts.max_stack = counts.max_stack.max(stack);
        counts.n_spilling_kernels +=
            compiled.kernels.iter().filter(|(_, resources)| resources.spills > 0).count() as u64;
        let functions = BTreeMap::new();
        let module = self.modules.add(Module { gpu, functions, is_binary: text.is_none(), code: compiled.code });
        for entry in entries {
            let resources = compiled.kernels.iter().find(|(name, _)| *name == entry.name);
            self.add_function(module, gpu, entry, resources.map(|(_, resources)| *resources))?;
        }
        Ok(module)
    }

    /// Unloads a module. Handles of its kernels are invalid afterwards.
    pub(crate) fn unload_module(&mut self, module: Handle) -> Answer {
        let Module { gpu, code, .. } = self.modules.remove(module)?;
        self.functions.retain(|function| function.module != module);
        self.gpus[gpu].books.unload_code(code);
        self.gpus[gpu].check()
    }

    /// Finds a kernel by its name. A binary is assumed to have it.
    pub(crate) fn find_function(&mut self, module: Handle, name: &str) -> Answer<Handle> {
        let found = self.modules.get(module)?;
        match (found.functions.get(name), found.is_binary) {
            (Some(function), _) => Ok(*function),
            (None, false) => Err(NOT_FOUND),
            (None, true) => {
                let entry = Entry { name: name.to_owned(), parameters: Vec::new(), max_threads: 1024 };
                let gpu = found.gpu;
                self.add_function(module, gpu, entry, None)
            }
        }
    }

    fn add_function(
        &mut self,
        module: Handle,
        gpu: usize,
        entry: Entry,
        resources: Option<crate::ptxas::Resources>,
    ) -> Answer<Handle> {
        let Entry { name, parameters, max_threads } = entry;
        let is_slow = self.scenario.slow.iter().any(|part| name.contains(part.as_str()));
        self.kernels.add(&name, resources);
        let function = Function {
            gpu,
            module,
            name: name.clone(),
            parameters,
            max_threads,
            resources,
            shared_dynamic: 0,
            is_slow,
        };
        let handle = self.functions.add(function);
        self.modules.get_mut(module)?.functions.insert(name, handle);
        Ok(handle)
    }

    /// Reads and compiles a module, as far as the scenario says so.
    fn prepare(&self, gpu: usize, text: Option<&str>) -> Answer<(Vec<Entry>, Compiled)> {
        let Some(text) = text else { return Ok((Vec::new(), Compiled::default())) };
        let capability = self.gpus[gpu].facts.capability;
        let refuse = |code, why: &str| {
            eprintln!(
                "stand-in-cuda: a module is refused on sm_{capability} with CUDA {}: {why}",
                self.scenario.driver
            );
            Err(code)
        };
        let Some(module) = PtxModule::parse(text) else { return refuse(INVALID_PTX, "it is not PTX") };
        if !module.is_known_to(self.scenario.driver) {
            return refuse(UNSUPPORTED_PTX_VERSION, &format!("its version of PTX is {}", module.version));
        }
        if !module.runs_on(capability) {
            return refuse(NO_BINARY_FOR_GPU, &format!("it is for {}", module.target));
        }
        let compiled = self.compiled(&module, capability, text);
        compiled.map_or_else(|why| refuse(INVALID_PTX, &why), |compiled| Ok((module.entries, compiled)))
    }

    fn compiled(&self, module: &PtxModule, capability: u32, text: &str) -> Result<Compiled, String> {
        let Some(folder) = &self.scenario.ptx else { return Ok(Compiled::default()) };
        let name = keep_text(folder, text)
            .map_err(|error| format!("its text cannot be written into {}: {error}", folder.display()))?;
        let Some(ptxas) = &self.scenario.ptxas else { return Ok(Compiled::default()) };
        let own = module.is_specific().then(|| module.target.clone());
        compile(ptxas, folder, &name, &own.unwrap_or_else(|| format!("sm_{capability}")))
    }
}
