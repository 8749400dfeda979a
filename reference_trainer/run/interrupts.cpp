// Signals as a flag: see interrupts.h. The handler runs on whatever thread the signal interrupts.
#include "reference_trainer/run/interrupts.h"

#include <csignal>
#include <initializer_list>

namespace syncd::trainer {
namespace {

volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t signals = 0;

void note(int number) {
  if (first_signal == 0) first_signal = number;
  signals = signals + 1;
}

}  // namespace

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = note;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  // A reader of our output that goes away must not keep us from stopping what we started.
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
}

void watch_termination() {
  struct sigaction action {};
  action.sa_handler = note;
  ::sigaction(SIGTERM, &action, nullptr);
}

int interrupt_signal() {
  return first_signal;
}
int interrupt_count() {
  return signals;
}

}  // namespace syncd::trainer
