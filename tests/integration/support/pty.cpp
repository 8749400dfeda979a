// See pty.h.
#include "support/pty.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace syncd::test {
namespace {

winsize size_of(int columns, int rows) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = static_cast<unsigned short>(rows);
  return size;
}

[[noreturn]] void run_child(const char* line, char* const* argv) {
  setsid();
  const int fd = open(line, O_RDWR);
  if (fd < 0 || ioctl(fd, TIOCSCTTY, 0) != 0) _exit(126);
  for (const int to : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(fd, to);
  if (fd > STDERR_FILENO) close(fd);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGQUIT, SIGTSTP, SIGPIPE}) ::signal(number, SIG_DFL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  execv(argv[0], argv);
  _exit(126);
}

}  // namespace

Pty::Pty(const std::vector<std::string>& argv, int columns, int rows)
    : fd_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
  if (fd_ < 0 || grantpt(fd_) != 0 || unlockpt(fd_) != 0) {
    throw std::runtime_error(std::string("no terminal: ") + std::strerror(errno));
  }
  const winsize size = size_of(columns, rows);
  ioctl(fd_, TIOCSWINSZ, &size);
  std::vector<std::string> words = argv;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::string line = ptsname(fd_);
  pid_ = fork();
  if (pid_ == 0) run_child(line.c_str(), pointers.data());
  if (pid_ < 0) throw std::runtime_error("fork failed");
}

Pty::~Pty() {
  if (!ended_) {
    // With whatever it has started: those hear of it when the terminal goes.
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(fd_);
}

void Pty::type(const std::string& keys) {
  if (write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) {
    throw std::runtime_error("the terminal takes no keys");
  }
}

void Pty::resize(int columns, int rows) {
  const winsize size = size_of(columns, rows);
  ioctl(fd_, TIOCSWINSZ, &size);
}

void Pty::signal(int number) const {
  ::kill(-pid_, number);
}

// False: nobody has the terminal open any more.
bool Pty::read_some() {
  char bytes[4096];
  const ssize_t count = read(fd_, bytes, sizeof bytes);
  if (count <= 0) return false;
  unread_.append(bytes, static_cast<std::size_t>(count));
  seen_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

std::string Pty::read_until(const std::string& text) {
  const Deadline deadline;
  while (true) {
    if (const std::size_t at = unread_.find(text); at != std::string::npos) {
      const std::string read = unread_.substr(0, at + text.size());
      unread_.erase(0, read.size());
      return read;
    }
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, deadline.left_ms()) <= 0 || !read_some()) {
      throw std::runtime_error("the program never wrote '" + text + "', but\n" + seen_);
    }
  }
}

std::string Pty::frame_with(const std::string& text) {
  const std::string corner = "\x1b[H";
  while (true) {
    std::string frame = read_until(corner);
    if (frame.find(text) != std::string::npos) return frame;
  }
}

Ending Pty::wait() {
  int status = 0;
  wait_until("the program to end", [&] {
    // What it still writes must not keep it.
    pollfd waiting{fd_, POLLIN, 0};
    if (poll(&waiting, 1, 0) > 0) read_some();
    return waitpid(pid_, &status, WNOHANG) == pid_;
  });
  ended_ = true;
  return WIFEXITED(status) ? exited(WEXITSTATUS(status)) : killed_by(WTERMSIG(status));
}

bool Pty::is_cooked() const {
  termios line{};
  return tcgetattr(fd_, &line) == 0 && (line.c_lflag & ICANON) != 0 && (line.c_lflag & ECHO) != 0;
}

}  // namespace syncd::test
