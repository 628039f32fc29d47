//! A profile of the process in Chrome's trace-event format: a track for each thread and device.

mod fields;

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

use halite_core::{Error, ErrorKind, Result, files};
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, registry::LookupSpan};

use self::fields::{Fields, quoted};

const OP: &str = "profile";

/// Target of the events that report finished work; their field `nanos` is its duration.
const FINISHED: &str = "halite::device";

/// Most events in a file; viewers cannot open larger traces.
const MAX_EVENTS: u64 = 4_000_000;

/// Writes a trace of the process while it runs. It records:
///
/// * all spans of [`tracing`], on the track of their thread. Those of halite are `step`, `trace`,
///   `print`, `compile`, `launch`, `upload`, `read`, `wait for data`, `wait for device`,
///   `checkpoint` and `validate`, and `unit` for each part of a program of the embedded executor;
/// * each launch, on the track of each of its devices, and each copy to the host. Both have the
///   number of their step where a span around the launch has a field `step`, as the trainer's has.
///
/// The file is a JSON array in Chrome's trace-event format, which
/// [Perfetto](https://ui.perfetto.dev) opens. If the process is killed, the array has no end, which
/// Perfetto accepts.
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
/// tracing::subscriber::with_default(subscriber, || {       // or `.init()`, for the whole program
///     let _span = tracing::info_span!("augment", images = 64).entered();
///     let client = Client::new(Null::new(1));
///     let (device, ty) = (client.local_devices()[0], TensorType::new(DType::F32, []));
///     client.upload(HostBytes::Borrowed(&[0; 4]), &ty, device.into()).unwrap();
/// });
/// trace.finish()?;
/// let text = std::fs::read_to_string(&path).unwrap();
/// assert!(text.contains(r#""name":"upload""#) && text.contains(r#""name":"augment""#));
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
    /// `None` after the trace is finished, or after a failed write.
    out: Option<BufWriter<File>>,
    error: Option<io::Error>,
    /// Tracks whose names are in the file.
    named: HashSet<Track>,
    events: u64,
}

/// A row of the trace.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Track {
    /// The thread that calls, by its [number](this_thread).
    Thread(u64),
    /// A device, by its id.
    Device(u64),
}

impl Track {
    /// Chrome's names for a group of tracks and for a track in it.
    fn ids(self) -> (u64, u64) {
        match self {
            Track::Thread(thread) => (1, thread),
            Track::Device(device) => (2, device),
        }
    }

    /// The name to show. Must be called on the thread that the track is of.
    fn name(self) -> String {
        match self {
            Track::Thread(thread) => thread::current()
                .name()
                .map_or_else(|| format!("thread {thread}"), str::to_string),
            Track::Device(device) => format!("device {device}"),
        }
    }
}

impl ChromeTrace {
    /// Creates the file, or truncates an existing one, and starts the trace.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let mut out = files::create_output(&path)
            .map(BufWriter::new)
            .map_err(|error| cannot_write(&path, error))?;
        let group = |pid: u64, name: &str| {
            format!(r#"{{"name":"process_name","ph":"M","pid":{pid},"args":{{"name":"{name}"}}}}"#)
        };
        let (host, devices) = (group(1, "host"), group(2, "devices"));
        write!(out, "[\n{host},\n{devices}").map_err(|error| cannot_write(&path, error))?;
        let file = TraceFile {
            out: Some(out),
            error: None,
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

    /// The layer for a subscriber. It records spans of every crate, and no log messages.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let is_recorded =
            |metadata: &Metadata<'_>| metadata.is_span() || metadata.target() == FINISHED;
        self.clone().with_filter(filter_fn(is_recorded))
    }

    /// Ends the trace. Later events are not recorded.
    ///
    /// # Errors
    /// If a part of the trace could not be written.
    pub fn finish(&self) -> Result<()> {
        let mut file = self.shared.lock();
        if let Some(mut out) = file.out.take() {
            out.write_all(b"\n]\n")
                .and_then(|()| out.flush())
                .map_err(|error| cannot_write(&self.shared.path, error))?;
        }
        file.error
            .take()
            .map_or(Ok(()), |error| Err(cannot_write(&self.shared.path, error)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, TraceFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Microseconds since the start of the trace.
    fn micros(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.started).as_nanos() as f64 / 1e3
    }

    /// Writes one event on a track: the inside of its JSON object, without the track.
    fn write(&self, event: &str, track: Track) {
        let mut file = self.lock();
        if file.events >= MAX_EVENTS || file.out.is_none() {
            return;
        }
        file.events += 1;
        let (pid, tid) = track.ids();
        let mut text = String::new();
        if file.named.insert(track) {
            let name = quoted(&track.name());
            let _ = write!(
                text,
                ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\
                 \"args\":{{\"name\":{name}}}}}",
            );
        }
        let _ = write!(text, ",\n{{{event},\"pid\":{pid},\"tid\":{tid}}}");
        if let Some(out) = &mut file.out
            && let Err(error) = out.write_all(text.as_bytes())
        {
            file.out = None;
            file.error = Some(error);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace in {}", self.path.display())
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Error {
    Error::new(
        ErrorKind::Io,
        OP,
        format!("cannot write {}", path.display()),
    )
    .caused_by(error)
}

/// Data of an open span.
struct Open {
    fields: Fields,
    entered: Instant,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ChromeTrace {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        // A second trace of the same subscriber replaces this with equal data.
        span.extensions_mut().replace(Open {
            fields,
            entered: Instant::now(),
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(&mut open.fields);
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
        let Some(Open { fields, entered }) = extensions.get::<Open>() else {
            return;
        };
        let start = self.shared.micros(*entered);
        let duration = (self.shared.micros(now) - start).max(0.0);
        let (name, args) = (quoted(span.name()), &fields.json);
        let event = format!(
            "\"name\":{name},\"cat\":\"host\",\"ph\":\"X\",\"ts\":{start:.3},\"dur\":{duration:.3},\
             \"args\":{{{args}}}"
        );
        self.shared.write(&event, Track::Thread(this_thread()));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let now = Instant::now();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Some(name) = fields.message.take() else {
            return;
        };
        // The spans around the launch, from the innermost one.
        let step = context.event_scope(event).and_then(|mut spans| {
            spans.find_map(|span| span.extensions().get::<Open>()?.fields.step)
        });
        if let Some(step) = step {
            fields.add("step", &step.to_string());
        }
        let (end, duration) = (self.shared.micros(now), fields.nanos as f64 / 1e3);
        let (name, args, start) = (quoted(&name), fields.json, (end - duration).max(0.0));
        let track = Track::Device(fields.device);
        if fields.is_program {
            let event = format!(
                "\"name\":{name},\"cat\":\"device\",\"ph\":\"X\",\"ts\":{start:.3},\
                 \"dur\":{duration:.3},\"args\":{{{args}}}"
            );
            return self.shared.write(&event, track);
        }
        // Copies overlap, which only asynchronous events may.
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let id = COPIES.fetch_add(1, Relaxed);
        let common = format!("\"name\":{name},\"cat\":\"copy\",\"id\":{id},\"args\":{{{args}}}");
        for (phase, at) in [("b", start), ("e", end)] {
            let event = format!("{common},\"ph\":\"{phase}\",\"ts\":{at:.3}");
            self.shared.write(&event, track);
        }
    }
}

/// A number for this thread, from 1.
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
