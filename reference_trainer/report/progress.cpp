// The progress line: see progress.h. No thread of its own.
#include "reference_trainer/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "reference_trainer/run/clock.h"

namespace syncd::trainer {
namespace {

constexpr std::int64_t kDrawEveryUs = 100'000;
constexpr std::size_t kBarMax = 24;
constexpr std::size_t kBarMin = 6;
constexpr std::size_t kColumnsDefault = 80;
constexpr std::string_view kGap = "  ";

double clamped_ratio(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
}

// The run ends at whichever limit comes first.
std::optional<double> share_done(const RunProgress& progress) {
  if (progress.iterations_max <= 0 && progress.seconds_max <= 0) return std::nullopt;
  return std::max(clamped_ratio(static_cast<double>(progress.iterations),
                                static_cast<double>(progress.iterations_max)),
                  clamped_ratio(progress.seconds, progress.seconds_max));
}

double rate_of(const RunProgress& progress) {
  return progress.seconds > 0 ? static_cast<double>(progress.iterations) / progress.seconds : 0;
}

std::optional<double> seconds_left(const RunProgress& progress) {
  std::optional<double> left;
  const double rate = rate_of(progress);
  if (progress.iterations_max > 0 && rate > 0) {
    left = static_cast<double>(progress.iterations_max - progress.iterations) / rate;
  }
  if (progress.seconds_max > 0) {
    const double rest = progress.seconds_max - progress.seconds;
    left = left ? std::min(*left, rest) : rest;
  }
  if (left) left = std::max(0.0, *left);
  return left;
}

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(std::min(seconds, 1e9)));
  if (whole < 100) return fmt::format("{} s", whole);
  const std::int64_t minutes = (whole + 30) / 60;
  if (minutes < 100) return fmt::format("{} min", minutes);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

std::string bar(double share, std::size_t width) {
  const auto done = static_cast<std::size_t>(share * static_cast<double>(width) + 0.5);
  return "[" + std::string(done, '#') + std::string(width - done, '.') + "]";
}

std::size_t columns_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kColumnsDefault;
  return size.ws_col;
}

}  // namespace

std::string progress_line(std::string_view label, const RunProgress& progress,
                          std::size_t columns) {
  std::vector<std::string> parts;
  const std::optional<double> share = share_done(progress);
  if (progress.seconds <= 0) {
    parts.emplace_back("starting");
  } else {
    if (share) parts.push_back(fmt::format("{:>3.0f}%", std::floor(*share * 100)));
    if (!share) parts.push_back(fmt::format("{} it", progress.iterations));
    parts.push_back(fmt::format("{:.1f} it/s", rate_of(progress)));
    if (std::isfinite(progress.loss)) parts.push_back(fmt::format("loss {:.4f}", progress.loss));
    if (const auto left = seconds_left(progress)) parts.push_back(duration(*left) + " left");
  }
  std::string line(label.substr(0, columns));
  std::size_t used = line.size();
  std::size_t fitting = 0;
  for (const std::string& part : parts) {
    if (used + kGap.size() + part.size() > columns) break;
    used += kGap.size() + part.size();
    ++fitting;
  }
  const std::size_t frame = kGap.size() + 2;
  if (share && progress.seconds > 0 && fitting == parts.size() &&
      used + frame + kBarMin <= columns) {
    const std::size_t width = std::min(kBarMax, columns - used - frame);
    line += std::string(kGap) + bar(*share, width);
  }
  for (std::size_t i = 0; i < fitting; ++i) line += std::string(kGap) + parts[i];
  return line;
}

ProgressLine::ProgressLine(int fd, bool wanted) : fd_(fd) {
  const char* terminal = std::getenv("TERM");
  const bool can_erase = terminal != nullptr && std::string_view(terminal) != "dumb" &&
                         !std::string_view(terminal).empty();
  is_terminal_ = wanted && can_erase && ::isatty(fd) == 1;
}

void ProgressLine::show(std::string_view label, const RunProgress& progress) {
  if (!is_terminal_) return;
  const std::int64_t now_us = SystemClock().now_us();
  if (now_us < next_us_) return;
  next_us_ = now_us + kDrawEveryUs;
  // The last column is left free: some terminals go to the next line when it is written.
  write(fmt::format("\r{}\x1b[K", progress_line(label, progress, columns_of(fd_) - 1)));
  is_drawn_ = true;
}

void ProgressLine::clear() {
  if (!is_drawn_) return;
  write("\r\x1b[K");
  is_drawn_ = false;
  next_us_ = 0;
}

// Nobody minds when a piece of it is lost.
void ProgressLine::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace syncd::trainer
