// A client made of a plain socket and the frame codec: it can say what a well-behaved client never
// would. Blocking, with a deadline in every wait; one thread. Failures throw.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proto/wire/wire.h"
#include "support/deadline.h"

namespace syncd::test {

class RawClient {
 public:
  // "unix:PATH" or "HOST:PORT" with a numeric IPv4 address.
  explicit RawClient(const std::string& address);
  virtual ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient& operator=(RawClient&&) = delete;
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // Shakes hands as this build's client does.
  wire::Welcome hello(const std::string& token = {});

  virtual void send_bytes(std::span<const std::uint8_t> bytes) { send_to_socket(bytes); }
  void send_bytes(std::string_view bytes);
  // Sends a request and returns its id.
  std::uint64_t send(wire::Body body);
  void send_with_id(std::uint64_t id, wire::Body body);
  void close_sending();  // end of file for the daemon, which may still answer

  // The next message that is no heartbeat; those are answered on the way. Throws at the deadline
  // and at the end of the stream.
  wire::Message receive(Milliseconds timeout = kPatience);
  // The answer to one request. Other answers and notifications that come first are kept.
  wire::Body answer(std::uint64_t id, Milliseconds timeout = kPatience);
  wire::Body call(wire::Body body) { return answer(send(std::move(body))); }

  // The answer as the type that it must have; throws with the daemon's own text if it is another.
  template <typename T>
  T call_for(wire::Body body) {
    return as<T>(call(std::move(body)));
  }
  template <typename T>
  static T as(const wire::Body& body) {
    if (const T* result = std::get_if<T>(&body)) return *result;
    throw std::runtime_error("unexpected answer: " + describe(body));
  }
  static std::string describe(const wire::Body& body);

  // Waits for a notification of one type, whenever it came.
  template <typename T>
  T notification(Milliseconds timeout = kPatience) {
    for (;;) {
      for (std::size_t i = 0; i < notifications_.size(); ++i) {
        const T* found = std::get_if<T>(&notifications_[i]);
        if (found == nullptr) continue;
        T result = *found;
        notifications_.erase(notifications_.begin() + static_cast<std::ptrdiff_t>(i));
        return result;
      }
      keep(receive(timeout));
    }
  }

  // Whatever comes before the daemon closes this connection; throws if it does not.
  std::vector<wire::Message> drain_until_closed(Milliseconds timeout = kPatience);

 protected:
  void send_to_socket(std::span<const std::uint8_t> bytes);
  // What came over the socket.
  virtual void arrived(std::span<const std::uint8_t> bytes) { splitter_.append(bytes); }
  wire::FrameSplitter splitter_;

 private:
  bool next_frame(const Deadline& deadline, wire::Message& message);
  void keep(wire::Message message);

  int fd_ = -1;
  std::uint64_t next_id_ = 1;
  wire::Encoder encoder_;
  std::vector<wire::Message> answers_;
  std::vector<wire::Body> notifications_;
};

// One that has shaken hands.
RawClient greeted(const std::string& address, const std::string& token = {});

// One worker of a job over such a connection, which it may share with others.
class RawWorker {
 public:
  RawWorker(RawClient& client, const wire::Join& join)
      : client_(&client), joined_(client.call_for<wire::Joined>(join)) {}

  const wire::Joined& joined() const { return joined_; }
  const wire::WorkerRef& ref() const { return joined_.worker; }
  wire::Granted begin(std::int64_t iteration) {
    return client_->call_for<wire::Granted>(wire::Begin{ref(), iteration});
  }
  wire::Pushed push(std::int64_t iteration) {
    return client_->call_for<wire::Pushed>(push_body(iteration));
  }
  void leave() { client_->call_for<wire::Ok>(wire::Leave{ref()}); }
  wire::Push push_body(std::int64_t iteration) const {
    wire::Push push;
    push.worker = ref();
    push.iteration = iteration;
    return push;
  }

 private:
  RawClient* client_;
  wire::Joined joined_;
};

wire::Join join_of(std::string job, std::int32_t rank, std::uint32_t world_size,
                   std::string policy = {});

// A client that has nothing to do with the trouble under test: a job of one worker, which must get
// on whatever others send.
class Bystander {
 public:
  explicit Bystander(const std::string& address, const std::string& job = "bystander");
  // Throws if the worker cannot run so many more iterations.
  void expect_progress(int iterations = 3);

 private:
  RawClient client_;
  RawWorker worker_;
  std::int64_t next_ = 0;
};

}  // namespace syncd::test
