// See c_api.h.
#include "support/c_api.h"

#include <cstdlib>
#include <stdexcept>

namespace syncd::test {
namespace {

// A call that fills an array, made again with the size that it names.
template <typename Item, typename Call>
Answer fill(std::vector<Item>& items, Call&& call) {
  std::size_t count = 0;
  Answer answer;
  do {
    items.resize(count);
    answer =
        answered([&](auto** error) { return call(items.data(), items.size(), &count, error); });
  } while (answer.status == SYNCD_E_BUFFER && count > items.size());
  return answer;
}

// The library lets these win over what the code says, and the machine may have them set.
bool forget_environment() {
  for (const char* name :
       {"SYNCD_ADDR", "SYNCD_JOB", "SYNCD_TOKEN_FILE", "SYNCD_CA_FILE", "SYNCD_CERTIFICATE_FILE",
        "SYNCD_KEY_FILE", "SYNCD_SERVER_NAME", "SYNCD_CONNECT_TIMEOUT_SEC",
        "SYNCD_RECONNECT_TIMEOUT_SEC", "SYNCD_BEGIN_TIMEOUT_SEC", "SYNCD_REQUEST_TIMEOUT_SEC",
        "RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE"}) {
    unsetenv(name);
  }
  return true;
}

const char* or_null(const std::string& text) {
  return text.empty() ? nullptr : text.c_str();
}

}  // namespace

std::string Answer::text() const {
  return std::string(syncd_strerror(status)) + ": " + message;
}

Answer ApiWorker::begin(syncd_step& step, std::int64_t timeout_ms) {
  return answered([&](auto** error) { return syncd_begin(worker_, timeout_ms, &step, error); });
}

Answer ApiWorker::push(std::int64_t iteration, std::int64_t timeout_ms, std::uint32_t* flags) {
  return answered([&](auto** error) {
    return syncd_push(worker_, iteration, nullptr, timeout_ms, flags, error);
  });
}

Answer ApiWorker::targets(std::int64_t iteration, std::vector<std::int32_t>& ranks,
                          std::int64_t timeout_ms) {
  return fill(ranks, [&](auto... out) {
    return syncd_worker_targets(worker_, iteration, timeout_ms, out...);
  });
}

Answer ApiWorker::collect(std::int64_t iteration, std::vector<syncd_update>& updates,
                          std::int64_t timeout_ms) {
  return fill(updates, [&](auto... out) {
    return syncd_worker_collect(worker_, iteration, timeout_ms, out...);
  });
}

Answer ApiWorker::consumed(std::int64_t iteration, std::int64_t timeout_ms) {
  return answered(
      [&](auto** error) { return syncd_worker_consumed(worker_, iteration, timeout_ms, error); });
}

Answer ApiWorker::restarted(std::int64_t iteration, std::int64_t timeout_ms) {
  return answered(
      [&](auto** error) { return syncd_worker_restarted(worker_, iteration, timeout_ms, error); });
}

Answer ApiWorker::leave(std::int64_t timeout_ms) {
  return answered([&](auto** error) { return syncd_leave(worker_, timeout_ms, error); });
}

Answer ApiWorker::iterate(int count) {
  for (int i = 0; i < count; ++i) {
    syncd_step step = SYNCD_STEP_INIT;
    Answer answer = begin(step);
    if (answer.ok()) answer = push(step.iteration);
    if (!answer.ok()) return answer;
  }
  return {};
}

ApiClient::ApiClient(const std::string& address, ApiTimeouts timeouts) {
  // Once, since nobody may read the environment while somebody changes it.
  [[maybe_unused]] static const bool forgotten = forget_environment();
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.addresses = address.c_str();
  options.client_name = "integration test";
  options.connect_timeout_ms = timeouts.connect_ms;
  options.reconnect_timeout_ms = timeouts.reconnect_ms;
  const Answer answer =
      answered([&](auto** error) { return syncd_client_open(&options, &client_, error); });
  if (!answer.ok()) throw std::runtime_error("syncd_client_open: " + answer.text());
}

Answer ApiClient::try_join(const ApiJoin& join, ApiWorker& worker) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.job = join.job.c_str();
  options.policy = or_null(join.policy);
  options.name = or_null(join.name);
  options.host = or_null(join.host);
  options.rank = join.rank;
  options.world_size = join.world_size;
  options.timeout_ms = join.timeout_ms;
  syncd_worker* joined = nullptr;
  const Answer answer =
      answered([&](auto** error) { return syncd_join(client_, &options, &joined, error); });
  if (answer.ok()) {
    syncd_worker_free(worker.worker_);
    worker.worker_ = joined;
  }
  return answer;
}

ApiWorker ApiClient::join(const ApiJoin& join) {
  ApiWorker worker;
  const Answer answer = try_join(join, worker);
  if (!answer.ok()) throw std::runtime_error("syncd_join: " + answer.text());
  return worker;
}

}  // namespace syncd::test
