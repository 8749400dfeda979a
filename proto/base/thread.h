// Threads in a program that may have others of its own. Any thread.
#pragma once

#include <signal.h>

#include <string>
#include <system_error>
#include <thread>

namespace syncd {

// Starts a thread that takes no signals: they are for the program's other threads, and a write to a
// socket that the peer has closed must not raise SIGPIPE in it. False, with the reason in `error`:
// the system starts none.
template <class Run>
bool start_without_signals(std::thread& thread, Run run, std::string& error) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  error.clear();
  try {
    thread = std::thread(run);
  } catch (const std::system_error& failure) {
    error = failure.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread.joinable();
}

}  // namespace syncd
