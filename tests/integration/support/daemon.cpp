// See daemon.h.
#include "support/daemon.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <stdexcept>

namespace syncd::test {

Daemon::Daemon(const TempDir& directory, DaemonOptions options)
    : directory_(directory), options_(std::move(options)) {
  if (!options_.config.empty()) {
    write_file(directory_.file(options_.name + ".toml"), options_.config);
  }
  start();
}

Daemon::~Daemon() {
  if (!may_have_ended_ && !process_.running()) {
    ADD_FAILURE() << options_.name << " ended by itself: " << to_string(*process_.ending());
  }
  process_.kill();
  if (logged("Sanitizer")) ADD_FAILURE() << "a sanitizer complained about " << options_.name;
  if (!::testing::Test::HasFailure()) return;
  std::fprintf(stderr, "---- log of %s ----\n%s---- end ----\n", options_.name.c_str(),
               log().c_str());
}

std::string Daemon::socket_path() const {
  return directory_.file(options_.name + ".sock");
}
std::string Daemon::store_path() const {
  return options_.store.empty() ? directory_.file(options_.name + ".store") : options_.store;
}
std::string Daemon::ready_path() const {
  return directory_.file(options_.name + ".ready");
}
std::string Daemon::log_path(int life) const {
  return directory_.file(options_.name + "-" + std::to_string(life) + ".log");
}

Command Daemon::command() const {
  Command command;
  command.argv = options_.under;
  command.argv.insert(command.argv.end(),
                      {program("syncd"), "--store", store_path(), "--mode", options_.mode, "--unix",
                       socket_path(), "--tcp", options_.tcp, "--ready-file", ready_path()});
  if (std::find(options_.flags.begin(), options_.flags.end(), "--log-level") ==
      options_.flags.end()) {
    command.argv.insert(command.argv.end(), {"--log-level", "debug"});
  }
  if (!options_.config.empty()) {
    command.argv.insert(command.argv.end(), {"--config", directory_.file(options_.name + ".toml")});
  }
  if (!options_.admin.empty()) {
    command.argv.insert(command.argv.end(), {"--admin", options_.admin});
  }
  command.argv.insert(command.argv.end(), options_.flags.begin(), options_.flags.end());
  for (const std::string& limit : options_.test_limits) {
    command.argv.insert(command.argv.end(), {"--test-limit", limit});
  }
  command.environment = {{"HOME", directory_.path()}};
  command.environment.insert(command.environment.end(), options_.environment.begin(),
                             options_.environment.end());
  command.sockets = options_.sockets;
  command.socket_names = options_.socket_names;
  command.stdout_path = log_path(lives_);
  return command;
}

void Daemon::launch() {
  ++lives_;
  std::remove(ready_path().c_str());
  process_ = Process(command());
  may_have_ended_ = false;
}

void Daemon::await_ready() {
  wait_until("syncd to be ready", [this] {
    if (!process_.running()) {
      throw std::runtime_error("syncd ended while it started (" + to_string(*process_.ending()) +
                               "):\n" + log());
    }
    return exists(ready_path());
  });
}

Ending Daemon::stop(Milliseconds timeout) {
  process_.signal(SIGTERM);
  return wait(timeout);
}

std::string Daemon::log() const {
  std::string all;
  for (int life = 1; life <= lives_; ++life) all += read_file(log_path(life));
  return all;
}

std::string Daemon::tcp_address() const {
  for (const std::string& line : lines_of(read_file(ready_path()))) {
    const std::size_t at = line.find("127.0.0.1:");
    if (at == std::string::npos) continue;
    return line.substr(at, line.find_first_of(" \t\",", at) - at);
  }
  throw std::runtime_error("the ready file names no TCP address: " + read_file(ready_path()));
}

std::string Daemon::admin_address() const {
  for (const std::string& line : lines_of(log_of_this_life())) {
    const std::size_t at = line.find("127.0.0.1:");
    if (at == std::string::npos || line.find("for=admin") == std::string::npos) continue;
    return line.substr(at, line.find(' ', at) - at);
  }
  throw std::runtime_error("the log names no admin address: " + log());
}

RunResult syncctl(const TempDir& directory, const Daemon& daemon,
                  const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {program("syncctl"), "--addr", daemon.address()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run(argv, directory.path(), {{"HOME", directory.path()}});
}

}  // namespace syncd::test
