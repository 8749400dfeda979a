// See etcd_client.h.
//
// A transaction is sent at most once, because a second one may find what the first has done. So a
// connection is tried with a harmless call before it carries one, and only what etcd rejected
// before it looked at the transaction is sent again.
#include "daemon/edge/etcd/etcd_client.h"

#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/version_info.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/etcd/rpc.grpc.pb.h"

namespace syncd::cluster {
namespace {

namespace pb = etcdserverpb;

constexpr Micros kSecond = 1'000'000;
constexpr Micros kLongest = 86'400 * kSecond;  // a time-out above it is cut

// Pages of a read. The first one is small, because nothing is known of its values.
constexpr std::size_t kFirstPageKeys = 4;
constexpr std::size_t kPageKeys = 256;
constexpr std::size_t kPageBytes = 1 << 20;
// A page may take so long to arrive, over a slow network, from an endpoint that has answered.
constexpr Micros kPageTime = 5 * kSecond;
constexpr int kReadOps = 16;  // in one request

// Milliseconds. etcd refuses clients that ping it more often than every 5 s. What was sent and not
// confirmed by the other machine's kernel for so long ends the connection.
constexpr int kPingEvery = 10'000;
constexpr int kUnconfirmed = 3'000;

// How long one call may take, and one endpoint's answer.
class Budget {
 public:
  Budget(Micros timeout, Micros silence)
      : timeout_(std::clamp<Micros>(timeout, 0, kLongest)),
        silence_(silence == std::numeric_limits<Micros>::max()
                     ? std::max<Micros>(timeout_, 1)
                     : std::clamp<Micros>(silence, 1, std::max<Micros>(timeout_ / 2, 1))),
        end_(std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_)) {}

  Micros left() const {
    const auto left = end_ - std::chrono::steady_clock::now();
    return std::chrono::duration_cast<std::chrono::microseconds>(left).count();
  }
  // The same, of a page behind the first.
  Budget for_pages() const {
    Budget pages = *this;
    pages.silence_ = std::max(silence_, kPageTime);
    return pages;
  }
  Micros next() const { return std::max<Micros>(std::min(left(), silence_), 1); }
  Micros timeout() const { return timeout_; }

 private:
  Micros timeout_;
  Micros silence_;
  std::chrono::steady_clock::time_point end_;
};

// One endpoint's connection.
struct Link {
  explicit Link(std::shared_ptr<grpc::Channel> made)
      : channel(std::move(made)),
        kv(channel),
        lease(channel),
        maintenance(channel),
        auth(channel) {}

  std::shared_ptr<grpc::Channel> channel;
  pb::KV::Stub kv;
  pb::Lease::Stub lease;
  pb::Maintenance::Stub maintenance;
  pb::Auth::Stub auth;
};

// How a call ended. `error`: empty, or the sentence about each endpoint that failed.
struct Outcome {
  grpc::StatusCode code = grpc::StatusCode::DEADLINE_EXCEEDED;
  std::string error = {};

  bool ok() const { return code == grpc::StatusCode::OK; }
};

// Whether another endpoint may do better. Every other code is an answer about the request.
bool is_fault_of_endpoint(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

// etcd rejected the request for its token alone: one that it does not know or that is out of date,
// or none. It has not looked at the rest.
bool wants_token(const grpc::Status& status) {
  const std::string text = status.error_message();
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
          (text.find("user name is empty") != std::string::npos ||
           text.find("revision of auth store is old") != std::string::npos));
}

const char* name_of(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const auto index = static_cast<std::size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "unknown code";
}

// A peer's text, for a line of a log.
std::string one_line(std::string text) {
  constexpr std::size_t kLongestText = 500;
  if (text.size() > kLongestText) text.resize(kLongestText);
  for (char& c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = ' ';
  }
  return text;
}

// What may be wrong in the configuration. Empty: nothing that could be told.
std::string hint_for(const grpc::Status& status, const EtcdAccess::Endpoint& endpoint) {
  const std::string text = status.error_message();
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  if (says("user name is empty")) return ": set cluster.user and cluster.password_file";
  if (!says("Socket closed") && !says("wrong version number")) return {};
  return endpoint.tls ? ": if it speaks http, cluster.etcd must say so"
                      : ": if it speaks https, cluster.etcd must say so";
}

bool is_header_text(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// ---- requests and answers

void set_range(const Op& op, std::size_t limit, Revision revision, pb::RangeRequest& range) {
  range.set_key(op.key);
  if (!op.end.empty()) {
    range.set_range_end(op.end);
    range.set_limit(static_cast<std::int64_t>(limit));
  }
  range.set_revision(revision);
  // What an etcd has of a revision is the same everywhere, and it says if it has not come so far.
  range.set_serializable(revision != 0);
}

void add(const Op& op, LeaseId lease, pb::RequestOp& request) {
  switch (op.kind) {
    case Op::Kind::kGet:
      set_range(op, 0, 0, *request.mutable_request_range());
      break;
    case Op::Kind::kPut:
    case Op::Kind::kPutOnLease: {
      pb::PutRequest& put = *request.mutable_request_put();
      put.set_key(op.key);
      put.set_value(op.value);
      if (op.kind == Op::Kind::kPutOnLease) put.set_lease(lease);
      break;
    }
    case Op::Kind::kDelete: {
      pb::DeleteRangeRequest& removal = *request.mutable_request_delete_range();
      removal.set_key(op.key);
      removal.set_range_end(op.end);
      break;
    }
  }
}

void add(const Compare& compare, pb::Compare& request) {
  request.set_result(pb::Compare::EQUAL);
  request.set_key(compare.key);
  if (compare.value) {
    request.set_target(pb::Compare::VALUE);
    request.set_value(*compare.value);
  } else {
    request.set_target(pb::Compare::CREATE);
    request.set_create_revision(compare.revision);
  }
}

pb::TxnRequest make_request(const Transaction& transaction, LeaseId lease) {
  pb::TxnRequest request;
  for (const Compare& compare : transaction.compares) add(compare, *request.add_compare());
  for (const Op& op : transaction.then) add(op, lease, *request.add_success());
  for (const Op& op : transaction.otherwise) add(op, lease, *request.add_failure());
  return request;
}

bool only_gets(const Transaction& transaction) {
  return transaction.compares.empty() && !transaction.then.empty() &&
         std::all_of(transaction.then.begin(), transaction.then.end(),
                     [](const Op& op) { return op.kind == Op::Kind::kGet; });
}

// Moves what was found out of the answer; its bytes.
std::size_t take(pb::RangeResponse& range, std::vector<KeyValue>& got) {
  std::size_t bytes = 0;
  for (pb::KeyValue& found : *range.mutable_kvs()) {
    bytes += found.key().size() + found.value().size();
    got.push_back({std::move(*found.mutable_key()), std::move(*found.mutable_value()),
                   found.create_revision()});
  }
  return bytes;
}

Answer unknown(std::string error) {
  return {.kind = Answer::Kind::kUnknown, .error = std::move(error)};
}

Answer failed(const Outcome& outcome) {
  Answer answer = unknown(outcome.error);
  if (outcome.code == grpc::StatusCode::INVALID_ARGUMENT ||
      outcome.code == grpc::StatusCode::PERMISSION_DENIED) {
    answer.kind = Answer::Kind::kRefused;
  }
  return answer;
}

// No exception leaves the module: `lacking(text)` is the result instead of one.
template <typename Work, typename Lacking>
auto without_exceptions(Work&& work, Lacking&& lacking) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& exception) {
    return lacking(std::string("the call to etcd failed: ") + exception.what());
  } catch (...) {
    return lacking(std::string("the call to etcd failed"));
  }
}

Etcd::LeaseAnswer lease_unknown(std::string error) {
  return {.error = std::move(error)};
}

class EtcdClient : public Etcd {
 public:
  explicit EtcdClient(const EtcdAccess& access)
      : access_(access), links_(access.endpoints.size()) {}

  Answer transact(const Transaction& transaction, LeaseId lease, Micros timeout) override {
    return without_exceptions(
        [&] {
          const Budget budget(timeout, silence());
          return only_gets(transaction) ? read(transaction.then, budget)
                                        : write(transaction, lease, budget);
        },
        unknown);
  }

  LeaseAnswer grant(LeaseId lease, Micros ttl, Micros timeout) override {
    return without_exceptions(
        [&] {
          pb::LeaseGrantRequest request;
          request.set_id(lease);
          request.set_ttl((ttl + kSecond - 1) / kSecond);
          pb::LeaseGrantResponse response;
          const Outcome outcome = ask(Budget(timeout, silence()), Sent::kOnEach,
                                      [&](Link& link, grpc::ClientContext& context) {
                                        return link.lease.LeaseGrant(&context, request, &response);
                                      });
          if (!outcome.ok()) return lease_unknown(outcome.error);
          if (!response.error().empty()) {
            return lease_unknown("etcd granted no lease: " + one_line(response.error()));
          }
          return LeaseAnswer{.known = true,
                             .ttl = response.ttl() * kSecond,
                             .raft_term = response.header().raft_term()};
        },
        lease_unknown);
  }

  LeaseAnswer keep_alive(LeaseId lease, Micros timeout) override {
    return without_exceptions(
        [&] {
          pb::LeaseKeepAliveRequest request;
          request.set_id(lease);
          pb::LeaseKeepAliveResponse response;
          const Outcome outcome = ask(
              Budget(timeout, silence()), Sent::kOnce,
              [&](Link& link, grpc::ClientContext& context) {
                const auto stream = link.lease.LeaseKeepAlive(&context);
                const bool answered = stream->Write(request) && stream->Read(&response);
                // The answer counts; how etcd ends the stream does not, and may take long.
                if (answered) context.TryCancel();
                const grpc::Status status = stream->Finish();
                if (answered && response.id() == lease) return grpc::Status();
                if (!answered && !status.ok()) return status;
                return grpc::Status(grpc::StatusCode::UNKNOWN, "it gave no answer about the lease");
              });
          if (!outcome.ok()) return lease_unknown(outcome.error);
          return LeaseAnswer{.known = true,
                             .ttl = std::max<std::int64_t>(response.ttl(), 0) * kSecond,
                             .raft_term = response.header().raft_term()};
        },
        lease_unknown);
  }

  bool revoke(LeaseId lease, Micros timeout, std::string& error) override {
    const Outcome outcome = simply([&] {
      pb::LeaseRevokeRequest request;
      request.set_id(lease);
      pb::LeaseRevokeResponse response;
      return ask(Budget(timeout, silence()), Sent::kOnEach,
                 [&](Link& link, grpc::ClientContext& context) {
                   return link.lease.LeaseRevoke(&context, request, &response);
                 });
    });
    if (outcome.ok() || outcome.code == grpc::StatusCode::NOT_FOUND) return true;
    error = outcome.error;
    return false;
  }

  bool status(Status& status, Micros timeout, std::string& error) override {
    pb::StatusResponse response;
    const Outcome outcome = simply([&] {
      return ask(Budget(timeout, silence()), Sent::kOnEach,
                 [&](Link& link, grpc::ClientContext& context) {
                   return link.maintenance.Status(&context, pb::StatusRequest(), &response);
                 });
    });
    if (outcome.ok()) {
      status.version = response.version();
      status.used_bytes = static_cast<std::uint64_t>(response.dbsizeinuse());
      status.file_bytes = static_cast<std::uint64_t>(response.dbsize());
    }
    error = outcome.error;
    return outcome.ok();
  }

 private:
  // With one endpoint there is none to leave it for.
  Micros silence() const {
    return access_.endpoints.size() == 1 ? std::numeric_limits<Micros>::max() : access_.silence;
  }

  // How often a request may reach an endpoint: once in all, or each endpoint once.
  enum class Sent : std::uint8_t { kOnce, kOnEach };

  template <typename Work>
  static Outcome simply(Work&& work) {
    return without_exceptions(work, [](std::string error) {
      return Outcome{grpc::StatusCode::UNKNOWN, std::move(error)};
    });
  }

  Answer write(const Transaction& transaction, LeaseId lease, const Budget& budget) {
    const pb::TxnRequest request = make_request(transaction, lease);
    pb::TxnResponse response;
    const Outcome outcome = ask(budget, Sent::kOnce, [&](Link& link, grpc::ClientContext& context) {
      return link.kv.Txn(&context, request, &response);
    });
    if (!outcome.ok()) return failed(outcome);
    const std::vector<Op>& ops = response.succeeded() ? transaction.then : transaction.otherwise;
    if (static_cast<std::size_t>(response.responses_size()) != ops.size()) {
      return unknown("etcd answered another number of operations than it was sent");
    }
    Answer answer;
    answer.kind = response.succeeded() ? Answer::Kind::kThen : Answer::Kind::kElse;
    answer.revision = response.header().revision();
    answer.raft_term = response.header().raft_term();
    for (pb::ResponseOp& op : *response.mutable_responses()) {
      if (op.has_response_range()) take(*op.mutable_response_range(), answer.got);
    }
    return answer;
  }

  Answer read(const std::vector<Op>& ops, const Budget& budget) {
    Answer answer{.kind = Answer::Kind::kThen};
    for (std::size_t first = 0; first < ops.size(); first += kReadOps) {
      const std::size_t end = std::min(ops.size(), first + kReadOps);
      // The first request's revision is that of all others.
      pb::TxnRequest request;
      for (std::size_t i = first; i < end; ++i) {
        set_range(ops[i], kFirstPageKeys, answer.revision,
                  *request.add_success()->mutable_request_range());
      }
      pb::TxnResponse response;
      const Outcome outcome =
          ask(budget, Sent::kOnEach, [&](Link& link, grpc::ClientContext& context) {
            return link.kv.Txn(&context, request, &response);
          });
      if (!outcome.ok()) return failed(outcome);
      if (static_cast<std::size_t>(response.responses_size()) != end - first) {
        return unknown("etcd answered another number of operations than it was sent");
      }
      if (answer.revision == 0) {
        answer.revision = response.header().revision();
        answer.raft_term = response.header().raft_term();
      }
      for (std::size_t i = first; i < end; ++i) {
        pb::RangeResponse& range =
            *response.mutable_responses(static_cast<int>(i - first))->mutable_response_range();
        const Outcome rest = take_all(ops[i], range, budget.for_pages(), answer);
        if (!rest.ok()) return failed(rest);
      }
    }
    return answer;
  }

  // The first page of a range, and what follows it.
  Outcome take_all(const Op& op, pb::RangeResponse& range, const Budget& budget, Answer& answer) {
    Op rest = op;
    while (true) {
      const auto keys = static_cast<std::size_t>(range.kvs_size());
      const bool more = range.more() && keys > 0 && !op.end.empty();
      const std::size_t bytes = take(range, answer.got);
      if (!more) return {grpc::StatusCode::OK};
      // As long as values are of one size, pages are too.
      const std::size_t page = std::clamp<std::size_t>(
          kPageBytes * keys / std::max<std::size_t>(bytes, 1), 1, kPageKeys);
      rest.key = answer.got.back().key + '\0';
      pb::RangeRequest request;
      set_range(rest, page, answer.revision, request);
      const Outcome outcome =
          ask(budget, Sent::kOnEach, [&](Link& link, grpc::ClientContext& context) {
            return link.kv.Range(&context, request, &range);
          });
      if (!outcome.ok()) return outcome;
    }
  }

  // Sends a request to the current endpoint, and to the next ones if that one fails and `sent`
  // allows it. `send` may be called again with an answer that it has half filled: gRPC clears it.
  template <typename Send>
  Outcome ask(const Budget& budget, Sent sent, Send&& send) {
    Outcome outcome;
    const std::size_t count = access_.endpoints.size();
    const std::size_t first = current_;
    for (std::size_t tried = 0; tried < count && budget.left() > 0; ++tried) {
      const std::size_t index = (first + tried) % count;
      bool reached = false;
      const grpc::Status status = ask_one(index, budget, send, reached);
      outcome.code = status.error_code();
      if (status.ok()) {
        outcome.error.clear();
        return outcome;
      }
      add_sentence(index, status, budget, outcome.error);
      if (!is_fault_of_endpoint(status)) return outcome;
      leave(index);
      if (reached && sent == Sent::kOnce) return outcome;
    }
    if (outcome.error.empty()) outcome.error = "no time was left to ask etcd";
    return outcome;
  }

  // `reached`: etcd may have taken the request, or may take it yet.
  template <typename Send>
  grpc::Status ask_one(std::size_t index, const Budget& budget, Send&& send, bool& reached) {
    std::shared_ptr<Link> link;
    if (grpc::Status status = connect(index, budget, link); !status.ok()) return status;
    std::string token;
    if (!access_.user.empty()) {
      if (grpc::Status status = find_token(*link, budget, token); !status.ok()) return status;
    }
    for (bool last = access_.user.empty();; last = true) {
      grpc::Status status;
      {
        grpc::ClientContext context;
        prepare(context, budget, token);
        reached = true;
        status = send(*link, context);
      }
      if (!wants_token(status)) return status;
      reached = false;
      // Not INVALID_ARGUMENT: nothing is wrong with the request.
      if (last) return {grpc::StatusCode::UNAUTHENTICATED, status.error_message()};
      forget_token(token);
      if (status = find_token(*link, budget, token); !status.ok()) return status;
    }
  }

  static void prepare(grpc::ClientContext& context, const Budget& budget,
                      const std::string& token) {
    // Not by the system's time, which may be set.
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_micros(budget.next(), GPR_TIMESPAN)));
    // An etcd that is cut off from its leader answers at once.
    context.AddMetadata("hasleader", "true");
    if (!token.empty()) context.AddMetadata("token", token);
  }

  // A connection over which this endpoint has answered. Whatever fails here, no request was sent.
  grpc::Status connect(std::size_t index, const Budget& budget, std::shared_ptr<Link>& link) {
    {
      const std::lock_guard lock(mutex_);
      std::shared_ptr<Link>& kept = links_[index];
      const auto state = kept == nullptr ? GRPC_CHANNEL_SHUTDOWN : kept->channel->GetState(false);
      // A channel that failed waits before it connects again, longer each time. A new one does not.
      if (state == GRPC_CHANNEL_SHUTDOWN || state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
        kept = std::make_shared<Link>(make_channel(access_.endpoints[index]));
      }
      link = kept;
      if (state == GRPC_CHANNEL_READY) return {};
    }
    grpc::ClientContext context;
    prepare(context, budget, "");
    pb::StatusResponse response;
    const grpc::Status status = link->maintenance.Status(&context, pb::StatusRequest(), &response);
    return is_fault_of_endpoint(status) ? status : grpc::Status();
  }

  std::shared_ptr<grpc::Channel> make_channel(const EtcdAccess::Endpoint& endpoint) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEvery);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kUnconfirmed);
    // Two channels to one endpoint would share a connection, and its wait before it is tried again.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    if (endpoint.tls) {
      grpc::SslCredentialsOptions options;
      options.pem_root_certs = access_.ca;
      options.pem_cert_chain = access_.certificate;
      options.pem_private_key = access_.key;
      credentials = grpc::SslCredentials(options);
    } else {
      credentials = grpc::InsecureChannelCredentials();
    }
    return grpc::CreateCustomChannel("dns:///" + endpoint.address, credentials, arguments);
  }

  // The token that all calls use. Empty: etcd's authentication is off.
  grpc::Status find_token(Link& link, const Budget& budget, std::string& token) {
    {
      const std::lock_guard lock(mutex_);
      if (token_) {
        token = *token_;
        return {};
      }
    }
    grpc::ClientContext context;
    prepare(context, budget, "");
    pb::AuthenticateRequest request;
    request.set_name(access_.user);
    request.set_password(access_.password);
    pb::AuthenticateResponse response;
    const grpc::Status status = link.auth.Authenticate(&context, request, &response);
    const bool off =
        status.error_code() == grpc::StatusCode::FAILED_PRECONDITION &&
        status.error_message().find("authentication is not enabled") != std::string::npos;
    if (!status.ok() && !off) {
      if (is_fault_of_endpoint(status)) return status;
      return {grpc::StatusCode::UNAUTHENTICATED,
              "user '" + access_.user + "': " + status.error_message()};
    }
    token = off ? "" : response.token();
    // gRPC ends the process over others in a header.
    if (!is_header_text(token)) {
      return {grpc::StatusCode::UNAUTHENTICATED, "it gave a token that no header can hold"};
    }
    const std::lock_guard lock(mutex_);
    token_ = token;
    return {};
  }

  // Another thread may have got a new one already.
  void forget_token(const std::string& token) {
    const std::lock_guard lock(mutex_);
    if (token_ == token) token_.reset();
  }

  void leave(std::size_t index) {
    current_.compare_exchange_strong(index, (index + 1) % access_.endpoints.size());
  }

  void add_sentence(std::size_t index, const grpc::Status& status, const Budget& budget,
                    std::string& error) const {
    if (!error.empty()) error += "; ";
    error += "etcd at " + access_.endpoints[index].name;
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      error += " did not answer in time (" + std::to_string(budget.timeout() / 1000) +
               " ms for the call, less for each endpoint)";
    } else {
      error += ": " + one_line(status.error_message()) + " (" + name_of(status.error_code()) + ")" +
               hint_for(status, access_.endpoints[index]);
    }
  }

  const EtcdAccess access_;
  std::atomic<std::size_t> current_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Link>> links_;  // by endpoint
  std::optional<std::string> token_;
};

// Standard error is the daemon's. From 1.65 on gRPC writes through Abseil, and only errors.
void silence_grpc() {
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 65
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function([](gpr_log_func_args*) {}); });
#endif
}

}  // namespace

std::unique_ptr<Etcd> make_etcd_client(const EtcdAccess& access) {
  silence_grpc();
  return std::make_unique<EtcdClient>(access);
}

}  // namespace syncd::cluster
