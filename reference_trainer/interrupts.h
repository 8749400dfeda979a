// SIGINT, SIGTERM and SIGHUP turned into a flag that the monitor reads. Handlers are installed
// once, by the parent process; workers do not use this.
#pragma once

namespace syncd::trainer {

// From now on these signals set the flag instead of ending the process, and SIGPIPE is ignored.
void watch_interrupts();

// The first signal that came, or 0; and how many came.
int interrupt_signal();
int interrupt_count();

}  // namespace syncd::trainer
