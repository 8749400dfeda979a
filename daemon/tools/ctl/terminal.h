// The terminal as a full-screen program uses it: keys one by one and unseen, a screen of its own,
// and signals as bytes that can be polled for. One object in a process, one thread.
#pragma once

#include <termios.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

namespace syncd::ctl {

struct ScreenSize {
  std::size_t width = 80;
  std::size_t height = 24;
};
// Of the terminal on standard output; 80x24 if there is none or it does not say.
ScreenSize screen_size();

class Terminal {
 public:
  // Takes the terminal on standard input and output. Throws std::runtime_error if there is none, or
  // if it cannot be used.
  Terminal();
  ~Terminal();  // gives it back as it was
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Waits for keys, a signal, or `wake_fd` being readable, for at most timeout_ms (-1: for ever).
  // What was typed is appended to `typed`, and signals (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP,
  // SIGCONT, SIGWINCH) to `signals`. False: the terminal is gone.
  bool wait(int wake_fd, int timeout_ms, std::string& typed, std::vector<int>& signals);

  // Replaces what the screen shows, as far as there are lines.
  void show(const std::vector<std::string>& lines);

  // Gives the terminal back and stops the process, as ^Z does. Returns when a shell continues the
  // process, or at once if there is no such shell.
  void suspend();
  // Takes the terminal again, after another process has stopped and continued this one.
  void resume();

 private:
  void enter();
  void leave();

  termios before_{};
  bool entered_ = false;
  std::array<int, 2> pipe_{-1, -1};
  std::array<struct sigaction, 7> handlers_{};
};

}  // namespace syncd::ctl
