//! The progress bar: one line for each epoch.

mod step_lines;

use std::{
    fmt,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use halite_core::format_count;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use self::step_lines::StepLines;
use crate::format::{format_metric, format_seconds};

/// Progress of a run on the standard error stream.
///
/// On a terminal a bar moves, at most twenty times a second, and its last state stays when the
/// epoch is done:
///
/// ```text
/// epoch 1/2 [=================>  ] 412/469  loss 0.0812  accuracy 97.61 %  8,123 samples/s  eta 12 s
/// ```
///
/// Elsewhere (a file, a pipe) a line for each epoch is printed, and in a long epoch one each minute:
/// `epoch 1/90  412/40,036 steps  loss 6.812  accuracy 0.31 %  102 samples/s`. Counting a step is
/// cheap enough for steps of microseconds.
///
/// With [`each`](Self::each) a line is also printed every N steps, with or without a terminal:
///
/// ```text
/// epoch 1/2  200/469 steps  loss 0.0812  average 0.1203  lowest 0.0790  12 s  8,123 samples/s
/// ```
pub struct Progress {
    epochs: u64,
    steps_per_epoch: u64,
    output: Output,
    state: Mutex<Display>,
    lines: Option<Mutex<StepLines>>,
}

enum Output {
    Bar(ProgressDrawTargetMaker),
    Lines(Mutex<Box<dyn Write + Send>>),
    Quiet,
}

/// A target serves one bar, and each epoch has its own.
type ProgressDrawTargetMaker = Box<dyn Fn() -> ProgressDrawTarget + Send + Sync>;

struct Display {
    epoch: u64,
    bar: ProgressBar,
    /// Spinner of a wait outside of the steps, such as compiling.
    waiting: Option<ProgressBar>,
    running: bool,
    begun: Instant,
    steps: u64,
    samples: u64,
    metrics: String,
    /// When a line was printed without a terminal, or the epoch began.
    printed: Instant,
    /// Time of the validations of this epoch that have ended.
    validated: Duration,
    /// When the current validation began.
    validating: Option<Instant>,
}

/// Time between lines within an epoch, without a terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

impl Progress {
    /// Shows `epochs` of `steps_per_epoch` each on the standard error stream; nothing if `quiet`.
    /// `u64::MAX` is an unknown number of epochs.
    pub fn new(epochs: u64, steps_per_epoch: u64, quiet: bool) -> Self {
        let output = match quiet {
            true => Output::Quiet,
            // A terminal that cannot move the cursor (`TERM=dumb`) has no bars, but lines.
            false if !ProgressDrawTarget::stderr().is_hidden() => {
                Output::Bar(Box::new(ProgressDrawTarget::stderr))
            }
            false => Output::Lines(Mutex::new(Box::new(io::stderr()))),
        };
        Self::with_output(epochs, steps_per_epoch, output)
    }

    /// Prints a line for each epoch into `writer`, as without a terminal.
    pub fn lines_to(
        epochs: u64,
        steps_per_epoch: u64,
        writer: impl Write + Send + 'static,
    ) -> Self {
        Self::with_output(
            epochs,
            steps_per_epoch,
            Output::Lines(Mutex::new(Box::new(writer))),
        )
    }

    fn with_output(epochs: u64, steps_per_epoch: u64, output: Output) -> Self {
        let state = Display {
            epoch: 0,
            bar: ProgressBar::hidden(),
            waiting: None,
            running: false,
            begun: Instant::now(),
            steps: 0,
            samples: 0,
            metrics: String::new(),
            printed: Instant::now(),
            validated: Duration::ZERO,
            validating: None,
        };
        Progress {
            epochs,
            steps_per_epoch,
            output,
            state: Mutex::new(state),
            lines: None,
        }
    }

    /// Prints a line every `steps` steps: the loss, its average in the epoch, the lowest of the run,
    /// the time since the epoch began, and the speed. A loss is the mean of the steps since
    /// metrics were copied last.
    pub fn each(mut self, steps: u64) -> Self {
        self.lines = Some(Mutex::new(StepLines::each(steps.max(1))));
        self
    }

    /// Prints the line of `step`, counted from 1 over the run, if one is due. `loss` is the mean of the steps
    /// since the last call.
    pub fn losses(&self, step: u64, loss: f64) {
        let Some(lines) = &self.lines else {
            return;
        };
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(losses) = lines.add(step, self.steps_per_epoch, loss) else {
            return;
        };
        let (line, all) = {
            let state = self.state();
            let took = format_seconds(state.begun.elapsed().as_secs_f64());
            let speed = state.speed();
            let [current, average, lowest] = [losses.current, losses.average, losses.lowest]
                .map(|loss| format_metric("loss", loss));
            let line = format!(
                "steps  loss {current}  average {average}  lowest {lowest}  {took}  {speed}"
            );
            (line, self.of_all((step - 1) / self.steps_per_epoch.max(1)))
        };
        let [done, of] = [losses.step, self.steps_per_epoch].map(format_count);
        self.message(&format!("{all}  {done}/{of} {line}"));
    }

    /// Shows, on a terminal, a spinner with `what` and the elapsed time: compiling a large model
    /// takes minutes. The next wait or epoch replaces it.
    pub fn waiting_for(&self, what: &str) {
        let Output::Bar(target) = &self.output else {
            return;
        };
        let mut state = self.state();
        state.done_waiting();
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}")
            .expect("the template is well formed");
        let spinner = ProgressBar::with_draw_target(None, target())
            .with_style(style)
            .with_message(what.to_string());
        spinner.enable_steady_tick(Duration::from_millis(200));
        state.waiting = Some(spinner);
    }

    /// Removes the spinner.
    pub fn done_waiting(&self) {
        self.state().done_waiting();
    }

    /// Shows that the steps of the epoch are done and the validation runs.
    pub fn validating(&self) {
        let mut state = self.state();
        state.validating = Some(Instant::now());
        if let (Output::Bar(_), true) = (&self.output, state.running) {
            state.bar.set_style(template(
                "{prefix} [{wide_bar}] {pos}/{len}  {msg}  validating",
            ));
            state.bar.tick();
        }
    }

    /// Shows the metrics of a validation within the epoch, after `step`: in a line of their own;
    /// the bar of the epoch continues.
    pub fn validated(&self, step: u64, metrics: &[(&str, f64)]) {
        {
            let mut state = self.state();
            state.validation_done();
            state.bar.set_style(style());
        }
        self.message(&format!(
            "step {}  {}",
            format_count(step),
            text_of(metrics)
        ));
    }

    /// Starts `epoch`, counted from 0, `done` of whose steps were done before a resume.
    pub fn epoch_begun(&self, epoch: u64, done: u64) {
        if let Some(lines) = &self.lines {
            let step = epoch
                .saturating_mul(self.steps_per_epoch)
                .saturating_add(done);
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.begin_after(step);
        }
        let mut state = self.state();
        state.done_waiting();
        if state.running {
            state.bar.abandon();
        }
        let bar = match &self.output {
            Output::Bar(target) => {
                ProgressBar::with_draw_target(Some(self.steps_per_epoch), target())
            }
            Output::Lines(_) | Output::Quiet => ProgressBar::hidden(),
        };
        let bar = bar
            .with_style(style())
            .with_prefix(self.of_all(epoch))
            .with_position(done);
        bar.reset_eta();
        *state = Display {
            epoch,
            bar,
            waiting: None,
            running: true,
            begun: Instant::now(),
            steps: done,
            samples: 0,
            metrics: String::new(),
            printed: Instant::now(),
            validated: Duration::ZERO,
            validating: None,
        };
    }

    /// Counts one step of `samples` samples.
    pub fn step(&self, samples: u64) {
        let mut state = self.state();
        state.steps += 1;
        state.samples += samples;
        state.bar.inc(1);
    }

    /// Shows the newest values of the metrics.
    pub fn metrics(&self, metrics: &[(&str, f64)]) {
        let mut state = self.state();
        state.metrics = text_of(metrics);
        let message = format!("{}  {}", state.metrics, state.speed());
        let message = message.trim_start();
        state.bar.set_message(message.to_string());
        if let Output::Lines(writer) = &self.output
            && state.running
            && state.printed.elapsed() >= BETWEEN_LINES
        {
            state.printed = Instant::now();
            let [done, all] = [state.steps, self.steps_per_epoch].map(format_count);
            let line = format!(
                "{}  {done}/{all} steps  {message}",
                self.of_all(state.epoch)
            );
            print(writer, &line);
        }
    }

    /// Ends the epoch with its metrics: the line remains, or is printed if there is no terminal.
    pub fn epoch_done(&self, metrics: &[(&str, f64)]) {
        let mut state = self.state();
        state.running = false;
        state.validation_done();
        let took = format_seconds(state.begun.elapsed().as_secs_f64());
        let validation = match state.validated {
            Duration::ZERO => String::new(),
            time => format!(" ({} of validation)", format_seconds(time.as_secs_f64())),
        };
        let text = format!(
            "{}  {}  {took}{validation}",
            text_of(metrics),
            state.speed()
        );
        match &self.output {
            Output::Bar(_) => {
                // Without the remaining time, so that the metrics have the whole line.
                state.bar.set_style(done_style());
                state
                    .bar
                    .abandon_with_message(text.trim_start().to_string());
            }
            Output::Lines(writer) => {
                let line = format!(
                    "{}  {} steps  {}",
                    self.of_all(state.epoch),
                    state.steps,
                    text.trim_start()
                );
                print(writer, &line);
            }
            Output::Quiet => {}
        }
    }

    /// Prints a line of its own, above the bar.
    pub fn message(&self, text: &str) {
        match &self.output {
            Output::Bar(_) => {
                let state = self.state();
                match (&state.waiting, state.running) {
                    (Some(spinner), _) => spinner.println(text),
                    (None, true) => state.bar.println(text),
                    // There is no bar between epochs. A failure to print must not end a run.
                    (None, false) => _ = writeln!(io::stderr(), "{text}"),
                }
            }
            Output::Lines(writer) => print(writer, text),
            Output::Quiet => {}
        }
    }

    /// `epoch 1/2`, or `epoch 1` where the number of epochs is not known.
    fn of_all(&self, epoch: u64) -> String {
        match self.epochs {
            u64::MAX => format!("epoch {}", epoch + 1),
            epochs => format!("epoch {}/{epochs}", epoch + 1),
        }
    }

    fn state(&self) -> MutexGuard<'_, Display> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Display {
    fn done_waiting(&mut self) {
        if let Some(spinner) = self.waiting.take() {
            spinner.finish_and_clear();
        }
    }

    fn validation_done(&mut self) {
        if let Some(began) = self.validating.take() {
            self.validated += began.elapsed();
        }
    }

    /// Speed of the training steps: without validations.
    fn speed(&self) -> String {
        let current = self
            .validating
            .map_or(Duration::ZERO, |began| began.elapsed());
        let training = (self.begun.elapsed()).saturating_sub(self.validated + current);
        let per_second = self.samples as f64 / training.as_secs_f64().max(1e-9);
        format!("{} samples/s", format_count(per_second.round() as u64))
    }
}

impl Drop for Progress {
    /// Keeps the line of an epoch that did not end.
    fn drop(&mut self) {
        let mut state = self.state();
        state.done_waiting();
        if state.running {
            state.bar.abandon();
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Progress({} epochs of {} steps)",
            self.epochs, self.steps_per_epoch
        )
    }
}

fn text_of(metrics: &[(&str, f64)]) -> String {
    let texts: Vec<String> = metrics
        .iter()
        .map(|(name, value)| format!("{name} {}", format_metric(name, *value)))
        .collect();
    texts.join("  ")
}

/// Progress that cannot be printed, on a closed pipe say, must not end a run.
fn print(writer: &Mutex<Box<dyn Write + Send>>, line: &str) {
    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = writeln!(writer, "{line}").and_then(|()| writer.flush());
}

/// The bar fills the rest of the line beside the numbers, so that the line does not wrap.
fn style() -> ProgressStyle {
    template("{prefix} [{wide_bar}] {pos}/{len}  {msg}  eta {left}")
}

fn done_style() -> ProgressStyle {
    template("{prefix} [{wide_bar}] {pos}/{len}  {msg}")
}

fn template(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    let left = |state: &ProgressState, out: &mut dyn fmt::Write| {
        let seconds = state.eta().as_secs_f64();
        // Unknown before the first steps.
        let known = seconds > 0.0 || state.len().is_none_or(|len| state.pos() >= len);
        let text = match seconds.ceil() {
            _ if !known => "?".into(),
            whole if whole < 60.0 => format!("{whole} s"),
            whole => format_seconds(whole),
        };
        // Text that cannot be written is not shown.
        let _ = out.write_str(&text);
    };
    style.progress_chars("=> ").with_key("left", left)
}

#[cfg(test)]
mod tests;
