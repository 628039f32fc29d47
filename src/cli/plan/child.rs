//! Child processes of `halite plan`: each compiles one sharding, so that a compiler that aborts or
//! hangs fails only that sharding.

use std::{
    process::ExitCode,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use halite::{
    Result,
    backends::{Located, OpenOptions, pjrt::printable},
    fetch,
    plan::{Candidate, Plan},
};
use serde::{Deserialize, Serialize};

use super::PlanCommand;
use crate::{
    cli::{Session, process},
    panics,
};

/// Result of the child process, as a line of JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Plan(Box<Plan>),
    Error(String),
}

impl PlanCommand {
    /// Compiles one sharding in this process, a child, and prints the result. The parent has
    /// installed the plugin.
    pub(super) fn run_child(&self, Candidate { mesh, strategy }: &Candidate) -> ExitCode {
        let options = OpenOptions {
            offline: true,
            ..self.open_options()
        };
        let opened =
            process::end_with_parent().and_then(|()| self.open(&options, &mut fetch::Quiet));
        let answer = match opened.and_then(|target| self.plan(&target, mesh, strategy)) {
            Ok(plan) => Answer::Plan(Box::new(plan)),
            Err(error) => Answer::Error(error.to_string()),
        };
        say!(
            "{}",
            serde_json::to_string(&answer).expect("a plan has names and numbers only")
        );
        ExitCode::SUCCESS
    }

    /// Compiles the sharding of this index in a child process. The inner error is that of the
    /// sharding.
    pub(super) fn plan_in_child(
        &self,
        index: usize,
        candidate: &Candidate,
        located: &Located,
    ) -> Result<Result<Plan, String>> {
        // Arguments before `plan` can only request a profile, which needs no child.
        let first = ["plan".into(), "--as-child".into(), index.to_string().into()];
        let batch = self.batch_size.filter(|_| self.largest_batch);
        let batch = batch.map(|size| format!("--child-batch-size={size}").into());
        let own = Session::current();
        let own = own.arguments.iter().skip(2).cloned();
        let arguments = (first.into_iter().chain(batch)).chain(own);
        let mut child = process::Child::start("plan", arguments, self.echoes())?;
        Ok(match self.receive(&child) {
            Ok(Answer::Plan(plan)) => Ok(*plan),
            Ok(Answer::Error(message)) => Err(message),
            Err(ended) => {
                let failure = self.failure(&mut child, ended, located);
                let (target, Candidate { mesh, strategy }) = (&self.target, candidate);
                Err(format!(
                    "plan for {target}: {strategy} on {mesh}: {failure}"
                ))
            }
        })
    }

    /// Waits for the result of the child, at most until the deadline.
    fn receive(&self, child: &process::Child) -> Result<Answer, RecvTimeoutError> {
        let end = Instant::now() + Duration::from_secs(self.deadline);
        loop {
            let line = child.line(end.saturating_duration_since(Instant::now()))?;
            match serde_json::from_str(&line) {
                Ok(answer) => return Ok(answer),
                // A plugin may write to stdout as well.
                Err(_) if self.echoes() => remark!("{}", printable(&line)),
                Err(_) => {}
            }
        }
    }

    /// Describes the failure of a child that returned no result.
    fn failure(
        &self,
        child: &mut process::Child,
        ended: RecvTimeoutError,
        located: &Located,
    ) -> String {
        let (failure, advice) = match ended {
            RecvTimeoutError::Timeout => (
                format!("took more than {} s and was stopped", self.deadline),
                "raise --deadline, or try another sharding or a smaller model",
            ),
            RecvTimeoutError::Disconnected if child.panicked() => {
                let output = child.last_output().unwrap_or_default();
                let (bug, report) = (panics::BUG, panics::REPORT);
                return format!("halite panicked: {output}; {bug}, not in the compiler: {report}");
            }
            RecvTimeoutError::Disconnected => {
                let status = child.status();
                let advice = if status.contains("SIGKILL") {
                    "this happens when the system runs out of memory"
                } else {
                    "try another sharding, batch size or precision; --verbose shows its output"
                };
                (format!("ended its process ({status})"), advice)
            }
        };
        let compiler = match located.plugin {
            Some(plugin) => plugin.package.to_string(),
            None => located.path.display().to_string(),
        };
        let output = child.last_output();
        let output = output.map_or_else(String::new, |text| format!("; its last output: {text}"));
        format!("the compiler, {compiler}, {failure}{output}; {advice}")
    }
}
