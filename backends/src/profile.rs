//! What a program does, as a trace that Perfetto and `chrome://tracing` show: a track for each
//! thread, and one for the device.

use std::{
    cell::Cell,
    collections::HashSet,
    fmt::{self, Write as _},
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use halite_core::{Error, ErrorKind, Result};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, registry::LookupSpan};

const OP: &str = "profile";

/// The target of events that tell of work which is done: their field `nanos` says how long it took.
const DONE: &str = "halite::device";

/// Events that are kept; a trace with more is too large for what shows it.
const MOST: u64 = 4_000_000;

/// Writes what halite does as trace events, while it does it: the spans `trace`, `print`,
/// `compile`, `launch`, `upload`, `read`, `wait for data`, `wait for device`, `checkpoint`,
/// `validate`; each run on the device; each copy to the host.
///
/// The file is a JSON array in Chrome's trace-event format, which
/// [Perfetto](https://ui.perfetto.dev) opens. A program that is killed leaves an array without its
/// end, which is read as well.
///
/// ```
/// use halite_backends::ChromeTrace;
/// use halite_core::{Client, HostBytes, Null, TensorType, DType};
/// use tracing_subscriber::prelude::*;
///
/// # fn main() -> halite_core::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("halite-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # let path = dir.join("trace.json");
/// let trace = ChromeTrace::create(&path)?;
/// let subscriber = tracing_subscriber::registry().with(trace.layer());
/// tracing::subscriber::with_default(subscriber, || {                 // or `.init()`, for the whole program
///     let client = Client::new(Null::new(1));
///     let device = client.local_devices()[0];
///     client.upload(HostBytes::Borrowed(&[0; 4]), &TensorType::new(DType::F32, []), device.into()).unwrap();
/// });
/// trace.finish()?;
/// assert!(std::fs::read_to_string(&path).unwrap().contains(r#""name":"upload""#));
/// # std::fs::remove_dir_all(dir).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ChromeTrace {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    started: Instant,
    file: Mutex<TraceFile>,
}

struct TraceFile {
    /// `None` once it is finished, or could not be written.
    out: Option<BufWriter<File>>,
    failed: Option<io::Error>,
    /// Threads whose names are in the file.
    named: HashSet<u64>,
    events: u64,
}

impl ChromeTrace {
    /// Begins a trace in a new file, or over an old one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let mut out = File::create(&path)
            .map(BufWriter::new)
            .map_err(|error| failed(&path, error))?;
        let process = r#"{"name":"process_name","ph":"M","pid":1,"args":{"name":"halite"}}"#;
        let device = r#"{"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"device"}}"#;
        write!(out, "[\n{process},\n{device}").map_err(|error| failed(&path, error))?;
        let file = TraceFile {
            out: Some(out),
            failed: None,
            named: HashSet::new(),
            events: 0,
        };
        Ok(ChromeTrace {
            shared: Arc::new(Shared {
                path,
                started: Instant::now(),
                file: Mutex::new(file),
            }),
        })
    }

    /// The layer for a subscriber. It takes what halite's crates say, and nothing else.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let wanted = |metadata: &Metadata<'_>| {
            metadata.target().starts_with("halite")
                && (metadata.is_span() || metadata.target() == DONE)
        };
        self.clone().with_filter(filter_fn(wanted))
    }

    /// Ends the trace. What happens afterwards is not in it.
    ///
    /// # Errors
    /// If something could not be written.
    pub fn finish(&self) -> Result<()> {
        let mut file = self.shared.lock();
        if let Some(mut out) = file.out.take() {
            out.write_all(b"\n]\n")
                .and_then(|()| out.flush())
                .map_err(|error| failed(&self.shared.path, error))?;
        }
        file.failed
            .take()
            .map_or(Ok(()), |error| Err(failed(&self.shared.path, error)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, TraceFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Microseconds since the trace began.
    fn micros(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.started).as_nanos() as f64 / 1e3
    }

    /// Writes one event: what comes after its `{`.
    fn write(&self, event: &str, thread: Option<u64>) {
        let mut file = self.lock();
        if file.events >= MOST || file.out.is_none() {
            return;
        }
        file.events += 1;
        let mut text = String::new();
        if let Some(tid) = thread.filter(|tid| file.named.insert(*tid)) {
            let name = thread::current()
                .name()
                .map_or_else(|| format!("thread {tid}"), str::to_string);
            let _ = write!(
                text,
                ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{tid},\"args\":{{\"name\":{}}}}}",
                json(&name)
            );
        }
        let _ = write!(text, ",\n{{{event}}}");
        if let Some(out) = &mut file.out
            && let Err(error) = out.write_all(text.as_bytes())
        {
            file.out = None;
            file.failed = Some(error);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace in {}", self.path.display())
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::new(
        ErrorKind::Io,
        OP,
        format!("cannot write {}", path.display()),
    )
    .caused_by(error)
}

/// What a span remembers while it is open.
struct Open {
    args: Fields,
    entered: Instant,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ChromeTrace {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut args = Fields::default();
        attributes.record(&mut args);
        // Another trace may have put its own there, which is the same.
        span.extensions_mut().replace(Open {
            args,
            entered: Instant::now(),
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(&mut open.args);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.entered = Instant::now();
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let now = Instant::now();
        let Some(span) = context.span(id) else { return };
        let extensions = span.extensions();
        let Some(Open { args, entered }) = extensions.get::<Open>() else {
            return;
        };
        let start = self.shared.micros(*entered);
        let took = (self.shared.micros(now) - start).max(0.0);
        let tid = this_thread();
        let (name, args) = (json(span.name()), &args.text);
        let event = format!(
            "\"name\":{name},\"cat\":\"host\",\"ph\":\"X\",\"pid\":1,\"tid\":{tid},\"ts\":{start:.3},\"dur\":{took:.3},\"args\":{{{args}}}"
        );
        self.shared.write(&event, Some(tid));
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let now = Instant::now();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (Some(name), nanos) = (fields.message.take(), fields.nanos) else {
            return;
        };
        let (end, took) = (self.shared.micros(now), nanos as f64 / 1e3);
        let (name, args, start) = (json(&name), fields.text, (end - took).max(0.0));
        if fields.program {
            let event = format!(
                "\"name\":{name},\"cat\":\"device\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":{start:.3},\"dur\":{took:.3},\"args\":{{{args}}}"
            );
            self.shared.write(&event, None);
            return;
        }
        // Copies overlap, which only asynchronous events may.
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let id = COPIES.fetch_add(1, Relaxed);
        let common = format!(
            "\"name\":{name},\"cat\":\"copy\",\"pid\":1,\"tid\":0,\"id\":{id},\"args\":{{{args}}}"
        );
        self.shared
            .write(&format!("{common},\"ph\":\"b\",\"ts\":{start:.3}"), None);
        self.shared
            .write(&format!("{common},\"ph\":\"e\",\"ts\":{end:.3}"), None);
    }
}

/// The fields of a span or event as the inside of a JSON object.
#[derive(Default)]
struct Fields {
    text: String,
    message: Option<String>,
    nanos: u64,
    /// Whether one of them is a program.
    program: bool,
}

impl Fields {
    fn add(&mut self, field: &Field, value: &str) {
        self.program |= field.name() == "program";
        let comma = if self.text.is_empty() { "" } else { "," };
        let _ = write!(self.text, "{comma}{}:{value}", json(field.name()));
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "nanos" => self.nanos = value,
            _ => self.add(field, &value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, &value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, &json(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = Some(value),
            _ => self.add(field, &json(&value)),
        }
    }
}

/// A text as JSON.
fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A number for this thread, from 1; 0 is the device.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    #[test]
    fn two_traces_of_one_subscriber_have_the_same_spans() {
        let dir = tempfile::tempdir().unwrap();
        let traces = ["one", "two"].map(|name| ChromeTrace::create(dir.path().join(name)).unwrap());
        let subscriber = tracing_subscriber::registry()
            .with(traces[0].layer())
            .with(traces[1].layer());
        tracing::subscriber::with_default(subscriber, || {
            drop(tracing::info_span!("work").entered())
        });
        for trace in traces {
            trace.finish().unwrap();
            assert!(
                std::fs::read_to_string(&trace.shared.path)
                    .unwrap()
                    .contains(r#""name":"work""#)
            );
        }
    }
}
