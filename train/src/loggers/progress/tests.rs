//! Tests of the progress bar, on a terminal and elsewhere.

use std::sync::Arc;

use indicatif::TermLike;

use super::*;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A terminal 120 columns wide, which keeps what is seen on it.
#[derive(Clone, Debug, Default)]
struct Screen(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    draws: usize,
}

const WIDTH: usize = 120;

impl Seen {
    fn put(&mut self, text: &str) {
        for c in text.chars() {
            if self.column == WIDTH {
                (self.row, self.column) = (self.row + 1, 0);
            }
            if self.lines.len() <= self.row {
                self.lines.resize(self.row + 1, Vec::new());
            }
            let line = &mut self.lines[self.row];
            line.resize(line.len().max(self.column + 1), ' ');
            line[self.column] = c;
            self.column += 1;
        }
    }
}

impl Screen {
    fn lines(&self) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        let lines = seen
            .lines
            .iter()
            .map(|line| line.iter().collect::<String>().trim_end().to_string());
        lines.filter(|line| !line.is_empty()).collect()
    }
}

impl TermLike for Screen {
    fn width(&self) -> u16 {
        WIDTH as u16
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        let mut seen = self.0.lock().unwrap();
        seen.row -= n;
        Ok(())
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.lock().unwrap().row += n;
        Ok(())
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.lock().unwrap().column += n;
        Ok(())
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        let mut seen = self.0.lock().unwrap();
        seen.column = seen.column.saturating_sub(n);
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        let mut seen = self.0.lock().unwrap();
        seen.put(text);
        (seen.row, seen.column) = (seen.row + 1, 0);
        Ok(())
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap().put(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        let mut seen = self.0.lock().unwrap();
        let row = seen.row;
        if let Some(line) = seen.lines.get_mut(row) {
            line.clear();
        }
        seen.column = 0;
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.0.lock().unwrap().draws += 1;
        Ok(())
    }
}

fn on(screen: &Screen) -> Progress {
    let screen = screen.clone();
    let target = move || ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 20);
    Progress::with_output(2, 469, Output::Bar(Box::new(target)))
}

#[test]
fn where_there_is_no_terminal_each_epoch_is_one_line() {
    let written = Written::default();
    let progress = Progress::lines_to(2, 469, written.clone());
    for epoch in 0..2 {
        progress.epoch_begun(epoch, 0);
        for _ in 0..469 {
            progress.step(128);
            progress.metrics(&[("loss", 0.5)]);
        }
        progress.epoch_done(&[("loss", 0.0812), ("accuracy", 0.9761)]);
    }
    progress.message("done");
    let text = written.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("epoch 1/2  469 steps  loss 0.08120  accuracy 97.61 %  "),
        "{text}"
    );
    assert!(
        lines[1].starts_with("epoch 2/2  469 steps  ") && lines[1].contains(" samples/s  "),
        "{text}"
    );
    assert_eq!(lines[2], "done");
}

#[test]
fn long_epoch_has_a_line_each_minute() {
    let written = Written::default();
    let progress = Progress::lines_to(90, 40_036, written.clone());
    progress.epoch_begun(0, 0);
    for step in 1..=1500 {
        progress.step(32);
        if step == 1200 {
            let mut state = progress.state();
            state.printed = state.printed.checked_sub(BETWEEN_LINES).unwrap();
        }
        progress.metrics(&[("loss", 6.5)]);
    }
    let text = written.text();
    assert_eq!(text.lines().count(), 1, "{text}");
    let start = "epoch 1/90  1,200/40,036 steps  loss 6.500  ";
    assert!(
        text.starts_with(start) && text.ends_with(" samples/s\n"),
        "{text}"
    );
}

#[test]
fn lines_are_printed_each_so_many_steps() {
    let written = Written::default();
    let progress = Progress::lines_to(2, 250, written.clone()).each(100);
    for epoch in 0..2 {
        progress.epoch_begun(epoch, 0);
        for step in 1..=250 {
            progress.step(8);
            if step % 50 == 0 {
                progress.losses(250 * epoch + step, 1000.0 / (250 * epoch + step) as f64);
            }
        }
        progress.epoch_done(&[]);
    }
    let text = written.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 7, "{text}");
    let starts = [
        "epoch 1/2  100/250 steps  loss 10.00  average 15.00  lowest 10.00  ",
        "epoch 1/2  200/250 steps  loss 5.000  average 10.42  lowest 5.000  ",
        "epoch 1/2  250 steps  ",
        "epoch 2/2  50/250 steps  loss 3.333  average 3.333  lowest 3.333  ",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(lines[0].ends_with(" samples/s"), "{text}");
}

#[test]
fn time_of_validation_is_told_apart() {
    let written = Written::default();
    let progress = Progress::lines_to(1, 1, written.clone());
    progress.epoch_begun(0, 0);
    progress.step(8);
    progress.validating();
    progress.epoch_done(&[("loss", 0.5)]);
    assert!(
        written.text().ends_with(" s (0.0 s of validation)\n"),
        "{}",
        written.text()
    );
}

#[test]
fn closed_pipe_does_not_end_the_run() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }
    let progress = Progress::lines_to(1, 1, Closed);
    progress.epoch_begun(0, 0);
    progress.epoch_done(&[]);
    progress.message("lost");
}

#[test]
fn bar_on_a_terminal_keeps_its_last_state() {
    let screen = Screen::default();
    let progress = on(&screen);
    progress.epoch_begun(0, 400);
    for _ in 0..35 {
        progress.step(128);
    }
    progress.metrics(&[("loss", 0.0812), ("accuracy", 0.9761)]);
    progress.message("checkpoint saved");
    let lines = screen.lines();
    assert_eq!(
        (lines.len(), &*lines[0]),
        (2, "checkpoint saved"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("epoch 1/2 [====="), "{lines:?}");
    assert!(
        lines[1].contains(" ] 435/469  loss 0.08120  accuracy 97.61 %  "),
        "{lines:?}"
    );
    assert!(lines[1].contains(" samples/s  eta "), "{lines:?}");

    progress.epoch_done(&[("loss", 0.08)]);
    progress.epoch_begun(1, 0);
    for _ in 0..100_000 {
        progress.step(128);
    }
    progress.epoch_done(&[("loss", 0.07)]);
    let lines = screen.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[1].starts_with("epoch 1/2 ") && lines[1].contains("  loss 0.08000  "),
        "{lines:?}"
    );
    assert!(
        lines[2].starts_with("epoch 2/2 ") && lines[2].contains("  loss 0.07000  "),
        "{lines:?}"
    );
    assert!(
        lines.iter().all(|line| !line.ends_with("eta 0 s")),
        "{lines:?}"
    );
    progress.epoch_begun(1, 7);
    drop(progress);
    assert!(
        screen.lines().last().unwrap().contains("] 7/469"),
        "{:?}",
        screen.lines()
    );
    let draws = screen.0.lock().unwrap().draws;
    assert!(draws < 200, "{draws} draws for 100 thousand steps");
}

#[test]
fn spinner_is_shown_until_an_epoch_starts() {
    let screen = Screen::default();
    let progress = on(&screen);
    progress.waiting_for("compiling the training step");
    progress.message("resumed at step 7");
    let lines = screen.lines();
    assert_eq!(
        (lines.len(), &*lines[0]),
        (2, "resumed at step 7"),
        "{lines:?}"
    );
    assert!(
        lines[1].contains(" compiling the training step, "),
        "{lines:?}"
    );
    progress.epoch_begun(0, 0);
    progress.step(128);
    progress.validating();
    let lines = screen.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[1].starts_with("epoch 1/2 [") && lines[1].ends_with("validating"),
        "{lines:?}"
    );
    progress.epoch_done(&[("loss", 0.08)]);
    progress.waiting_for("nothing");
    drop(progress);
    assert!(
        screen
            .lines()
            .iter()
            .all(|line| !line.contains("nothing") && !line.contains("validating")),
        "{:?}",
        screen.lines()
    );
}

#[test]
fn quiet_progress_prints_nothing() {
    let progress = Progress::new(1, 10, true);
    progress.epoch_begun(0, 0);
    progress.step(1);
    progress.metrics(&[("loss", f64::NAN)]);
    progress.message("not seen");
    progress.waiting_for("not seen either");
    progress.validating();
    progress.epoch_done(&[]);
    assert!(matches!(progress.output, Output::Quiet));
}
