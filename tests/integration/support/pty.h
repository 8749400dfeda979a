// A program on a terminal of its own, seen from the other side: what it writes, what it has made of
// the line, and how it ends. Use it from the test's main thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "support/process.h"

namespace syncd::test {

class Pty {
 public:
  // The program leads a session whose terminal is this one. It inherits the environment.
  Pty(const std::vector<std::string>& argv, int columns, int rows);
  ~Pty();
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  void type(const std::string& keys);
  // Tells whoever is in the foreground that the window has changed.
  void resize(int columns, int rows);
  void signal(int number) const;  // to all that it has started with it
  // Until the program has written `text` after what was read before; that, up to its end. Throws at
  // the deadline.
  std::string read_until(const std::string& text);
  // The next whole frame that holds `text`: what is written between two jumps to the corner.
  std::string frame_with(const std::string& text);
  // Reads on until it has ended.
  Ending wait();
  // Whether the line is as a shell leaves it: echo, and lines rather than keys. The kernel makes it
  // so when the program that leads the session ends.
  bool is_cooked() const;

 private:
  bool read_some();

  int fd_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string unread_;
  std::string seen_;  // all of it, for what a failure says
};

}  // namespace syncd::test
