//! Compilation of programs, and loading of those that a cache or a file has.

use std::{
    panic::Location,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Client, Compilation, ExecutableSource, Loaded, erased::AnyExecutable};
use crate::{
    CachedProgram, CompileCause, CompileOptions, Compiled, Error, Program, ProgramCache,
    ProgramKey, Result, Signature,
};

impl Client {
    /// Compiles for the devices that `options` names, or loads the program from the
    /// [cache](Self::with_program_cache). Blocks until it can be launched.
    ///
    /// # Errors
    /// The compiler's error.
    #[track_caller]
    pub fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Loaded> {
        let line = Some(Location::caller());
        let cause = CompileCause {
            origin: line,
            called_at: line,
            ..CompileCause::default()
        };
        self.compile_because(program, options, cause)
    }

    /// Compiles as [`compile`](Self::compile) does, for callers that know the cause: observers see
    /// it, and out-of-memory errors list its largest tensors.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_because(
        &self,
        program: &Program,
        options: &CompileOptions,
        cause: CompileCause,
    ) -> Result<Loaded> {
        let _span = tracing::trace_span!("compile", program = %program.name).entered();
        let started = Instant::now();
        let cached = self
            .programs
            .as_deref()
            .and_then(|cache| Some((cache, self.backend.program_key(program, options)?)));
        let found = cached.as_ref().and_then(|(cache, key)| {
            let load = || self.load_cached(*cache, key, program, options);
            load().or_else(|| cache.begin(key).then(load).flatten())
        });
        if let Some((executable, found)) = found {
            let duration = started.elapsed();
            let source = ExecutableSource::CacheHit {
                bytes: found.serialized.len(),
                saved: found.compile_time.saturating_sub(duration),
            };
            return Ok(self.loaded(executable, Some(program), cause, source, duration));
        }
        let started = Instant::now();
        let executable = match self.backend.compile(program, options) {
            Ok(executable) => executable,
            Err(error) => {
                if let Some((cache, key)) = &cached {
                    cache.failed(key);
                }
                let error = self.session.explain(error, &program.name, &cause.largest);
                return Err(self.compile_failed(program, error));
            }
        };
        let compile_time = started.elapsed();
        let mut source = ExecutableSource::Compiler;
        if let Some((cache, key)) = &cached {
            source = ExecutableSource::CacheMiss;
            let compiled = Compiled {
                name: &program.name,
                platform: &self.platform().name,
                compile_time,
            };
            cache.insert(key, &compiled, &|| executable.serialize());
        }
        Ok(self.loaded(executable, Some(program), cause, source, compile_time))
    }

    /// Looks a program up in the cache and loads it. A program that the backend rejects is a miss.
    fn load_cached(
        &self,
        cache: &dyn ProgramCache,
        key: &ProgramKey,
        program: &Program,
        options: &CompileOptions,
    ) -> Option<(Box<dyn AnyExecutable>, CachedProgram)> {
        let found = cache.find(key)?;
        let (name, signature) = (&program.name, &program.signature);
        match self
            .backend
            .load(&found.serialized, name, signature, options)
        {
            Ok(executable) => {
                cache.loaded(key);
                Some((executable, found))
            }
            Err(reason) => {
                cache.rejected(key, &reason);
                None
            }
        }
    }

    #[cold]
    fn compile_failed(&self, program: &Program, error: Error) -> Error {
        let observers = self.session.observers.iter();
        let notes: Vec<String> = observers
            .filter_map(|observer| observer.compile_failed(program, &error))
            .collect();
        notes
            .iter()
            .fold(error, |error, note| error.with_note(note))
    }

    /// Makes an executable launchable and tells the observers.
    fn loaded(
        &self,
        executable: Box<dyn AnyExecutable>,
        program: Option<&Program>,
        cause: CompileCause,
        source: ExecutableSource,
        duration: Duration,
    ) -> Loaded {
        let name = program.map_or_else(|| "loaded program".into(), |program| program.name.clone());
        let mut loaded = Loaded::new(executable, name, self.session.clone());
        let compilation = Compilation {
            program,
            loaded: &loaded,
            cause: &cause,
            source,
            duration,
        };
        let observers = self.session.observers.iter();
        let launch_observers = observers
            .filter_map(|observer| observer.compiled(&compilation))
            .collect();
        loaded.observe(launch_observers, cause.largest);
        loaded
    }

    /// Loads what [`Loaded::serialize`] returned on this platform and version, for a program of
    /// this signature.
    ///
    /// Serialized programs hold machine code. Backends reject bytes that are damaged, that another
    /// driver or version wrote, or that were written for another processor; none can detect a
    /// forgery. Load only bytes that you would run.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the bytes are damaged;
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if they are not a
    /// serialized program, or one of another platform, version or signature.
    pub fn load(
        &self,
        serialized: &[u8],
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Loaded> {
        let started = Instant::now();
        let name = Arc::from("loaded program");
        let executable = self.backend.load(serialized, &name, signature, options)?;
        Ok(self.loaded(
            executable,
            None,
            CompileCause::default(),
            ExecutableSource::Serialized,
            started.elapsed(),
        ))
    }
}
