// SIGINT, SIGTERM and SIGHUP turned into a flag that the monitor reads. Handlers are installed
// once, by the parent process; by a worker only where it saves checkpoints.
#pragma once

namespace syncd::trainer {

// From now on these signals set the flag instead of ending the process, and SIGPIPE is ignored.
void watch_interrupts();

// The same for SIGTERM alone, in a worker that saves before it ends.
void watch_termination();

// The first signal that came, or 0; and how many came.
int interrupt_signal();
int interrupt_count();

}  // namespace syncd::trainer
