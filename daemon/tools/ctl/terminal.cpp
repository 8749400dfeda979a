// See terminal.h.
#include "daemon/tools/ctl/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace syncd::ctl {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

std::atomic<int> signal_fd = -1;
std::atomic<bool> ending = false;

void on_signal(int number) {
  const int saved = errno;
  if (number != SIGTSTP && number != SIGCONT && number != SIGWINCH) ending = true;
  const char byte = static_cast<char>(number);
  // A full pipe has signals enough in it.
  if (write(signal_fd.load(), &byte, 1) < 0) errno = saved;
  errno = saved;
}

// False: the terminal takes no more, or a signal to end came. That signal must not wait for ^Q,
// which continues stopped output.
bool write_all(std::string_view text) {
  while (!text.empty()) {
    if (ending) return false;
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      pollfd entry{STDOUT_FILENO, POLLOUT, 0};
      if (poll(&entry, 1, 1000) <= 0) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // Without SA_RESTART, so that no write outlasts a signal to end.
  sigaction(number, &action, nullptr);
}

}  // namespace

ScreenSize screen_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

Terminal::Terminal() {
  if (tcgetattr(STDIN_FILENO, &before_) != 0 || pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::runtime_error(std::string("the terminal cannot be used: ") + std::strerror(errno));
  }
  signal_fd = pipe_[1];
  ending = false;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &handlers_[i]);
    // The caller may have set a signal to be ignored (nohup).
    if (handlers_[i].sa_handler != SIG_IGN) handle(kSignals[i], on_signal);
  }
  enter();
}

Terminal::~Terminal() {
  leave();
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &handlers_[i], nullptr);
  }
  signal_fd = -1;
  for (const int fd : pipe_) close(fd);
}

void Terminal::enter() {
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  entered_ = true;
  write_all("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J");  // own screen, no cursor, no line wrapping
}

void Terminal::leave() {
  if (!entered_) return;
  entered_ = false;
  if (ending.exchange(false)) {
    // ^S may have stopped the output. TCOON only continues what TCOOFF has stopped.
    tcflow(STDOUT_FILENO, TCOOFF);
    tcflow(STDOUT_FILENO, TCOON);
  }
  write_all("\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l");
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void Terminal::suspend() {
  leave();
  // Not SIGSTOP: a process whose shell is gone, or that never had one, would stop for ever.
  handle(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  handle(SIGTSTP, on_signal);
  enter();
}

void Terminal::resume() {
  enter();
}

void Terminal::show(const std::vector<std::string>& lines) {
  std::string out = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\r\n";
    out += "\x1b[2K" + lines[i];  // erased first: after the last column it would take that too
  }
  write_all(out);
}

bool Terminal::wait(int wake_fd, int timeout_ms, std::string& typed, std::vector<int>& signals) {
  std::array<pollfd, 3> entries{
      {{STDIN_FILENO, POLLIN, 0}, {pipe_[0], POLLIN, 0}, {wake_fd, POLLIN, 0}}};
  if (poll(entries.data(), entries.size(), timeout_ms) < 0) return errno == EINTR;
  std::array<char, 256> buffer{};
  if (entries[1].revents != 0) {
    const ssize_t count = read(pipe_[0], buffer.data(), buffer.size());
    for (ssize_t i = 0; i < count; ++i) signals.push_back(buffer[static_cast<std::size_t>(i)]);
  }
  if (entries[0].revents != 0) {
    const ssize_t count = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) return false;
    if (count > 0) typed.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace syncd::ctl
