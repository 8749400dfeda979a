// What must hold of update queues in devices' memory, whatever the device: the same cases for the
// CPU in a GPU's place and for a real one, as in device_store_cases.h.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "reference_trainer/params/device_queues.h"
#include "tests/unit/reference_trainer/device_store_cases.h"

namespace syncd::trainer::testing {

// A worker with a stepper's memory and no stepper.
class StandInPeer {
 public:
  StandInPeer(StoreDevice& device, DeviceQueues& queues, int worker)
      : stand_in(device.stand_in(queues.shape().parameters, worker)),
        view(stand_in->view()),
        port(queues.port(worker, view)) {}

  void holds(const std::vector<float>& values) { stand_in->write(view.replica, values); }
  std::vector<float> replica() const {
    std::vector<float> values(view.parameters);
    stand_in->read(values, view.replica);
    return values;
  }
  void sends(int to, std::int64_t iteration, const std::vector<float>& values) {
    holds(values);
    port->send(to, iteration);
    port->wait();
  }

  std::unique_ptr<DeviceStandIn> stand_in;
  DeviceView view;
  std::unique_ptr<DeviceQueuePort> port;
};

inline constexpr DeviceShape kSmallQueues{
    .parameters = 100, .piece_floats = 30, .workers = 3, .slots = 2};

inline void expect_reduced(const Reduced& found, std::int64_t whole, std::int64_t missing,
                           std::int64_t torn) {
  EXPECT_EQ(found.whole, whole);
  EXPECT_EQ(found.missing, missing);
  EXPECT_EQ(found.torn, torn);
}

inline void reduces_to_the_weighted_mean(StoreDevice& device) {
  const auto queues = device.create_queues(kSmallQueues, std::vector<float>(100));
  StandInPeer reader(device, *queues, 0);
  StandInPeer one(device, *queues, 1);
  StandInPeer two(device, *queues, 2);
  const std::vector<float> own = draw(100, 1);
  const std::vector<float> first = draw(100, 2);
  const std::vector<float> second = draw(100, 3);
  one.sends(0, 4, first);
  two.sends(0, 7, second);
  reader.holds(own);
  expect_reduced(
      reader.port->reduce(std::vector<PeerUpdate>{{0, 4, 0.5}, {1, 4, 0.2}, {2, 7, 0.3}}), 2, 0, 0);
  std::vector<float> expected(100);
  for (std::size_t i = 0; i < 100; ++i) {
    expected[i] =
        static_cast<float>(0.5 * double{own[i]} + 0.2 * double{first[i]} + 0.3 * double{second[i]});
  }
  expect_near(reader.replica(), expected, 1e-6F);
}

inline void leaves_out_what_is_not_there(StoreDevice& device) {
  const auto queues = device.create_queues(kSmallQueues, std::vector<float>(100));
  StandInPeer reader(device, *queues, 0);
  StandInPeer one(device, *queues, 1);
  for (const int iteration : {0, 1, 2}) {
    one.sends(0, iteration, std::vector<float>(100, static_cast<float>(iteration)));
  }
  const auto reduce = [&](const std::vector<PeerUpdate>& updates) {
    reader.holds(std::vector<float>(100, 10));
    return reader.port->reduce(updates);
  };
  // Overwritten, not written yet, of a worker that never sent, of one that there is not.
  for (const PeerUpdate& update :
       std::vector<PeerUpdate>{{1, 0, 0.5}, {1, 3, 0.5}, {2, 1, 0.5}, {3, 1, 0.5}, {-1, 1, 0.5}}) {
    expect_reduced(reduce({{0, 1, 0.25}, {1, 2, 0.25}, update}), 1, 1, 0);
    EXPECT_EQ(reader.replica(), std::vector<float>(100, 6)) << "the others' weights are raised";
    expect_reduced(reduce({update}), 0, 1, 0);
    EXPECT_EQ(reader.replica(), std::vector<float>(100, 10)) << "nothing is left to reduce";
  }
  one.port->forget();
  one.port->wait();
  expect_reduced(reduce({{0, 1, 0.5}, {1, 2, 0.5}}), 0, 1, 0);
  one.sends(0, 2, std::vector<float>(100, 20));
  expect_reduced(reduce({{0, 1, 0.5}, {1, 2, 0.5}}), 1, 0, 0);
  EXPECT_EQ(reader.replica(), std::vector<float>(100, 15));
}

inline void keeps_a_step_and_applies_it_later(StoreDevice& device) {
  const auto queues = device.create_queues(kSmallQueues, std::vector<float>(100));
  StandInPeer peer(device, *queues, 1);
  const SgdRule rule{.rate = 0.5F,
                     .scale = 0.25F,
                     .momentum = 0.5F,
                     .weight_decay = 0.125F,
                     .decayed = {{{.first = 0, .count = 100}}}};
  peer.holds(std::vector<float>(100, 8));
  peer.stand_in->write(const_cast<float*>(peer.view.gradient), std::vector<float>(100, 4));
  peer.port->keep_step(rule);  // velocity 1 + 1
  EXPECT_EQ(peer.replica(), std::vector<float>(100, 8));
  peer.holds(std::vector<float>(100, 16));
  peer.port->apply_step();
  EXPECT_EQ(peer.replica(), std::vector<float>(100, 15));
  peer.port->keep_step(rule);  // 0.5 * 2 + 1 + 1.875
  peer.port->apply_step();
  EXPECT_EQ(peer.replica(), std::vector<float>(100, 15 - 1.9375F));
}

// One writes as fast as it can, into slots that others read and into what it publishes.
inline void hands_out_no_mixture(StoreDevice& device, std::size_t parameters,
                                 std::size_t piece_floats, int rounds) {
  const DeviceShape shape{
      .parameters = parameters, .piece_floats = piece_floats, .workers = 2, .slots = 2};
  const auto queues = device.create_queues(shape, std::vector<float>(parameters));
  std::atomic<bool> done{false};
  std::atomic<std::int64_t> newest{-1};
  std::thread writer([&] {
    StandInPeer peer(device, *queues, 1);
    for (std::int64_t iteration = 0; !done; ++iteration) {
      peer.holds(std::vector<float>(parameters, static_cast<float>(iteration)));
      peer.port->send(0, iteration);
      peer.port->publish();
      peer.port->wait();
      newest = iteration;
    }
  });
  StandInPeer reader(device, *queues, 0);
  const std::vector<float> none(parameters, -1);
  std::vector<float> published(parameters);
  std::int64_t whole = 0;
  for (int round = 0; round < rounds || whole == 0; ++round) {
    const std::int64_t wanted = std::max<std::int64_t>(0, newest);
    reader.holds(none);
    const auto reduced = reader.port->reduce(std::vector<PeerUpdate>{{1, wanted, 1.0}});
    whole += reduced.whole;
    EXPECT_EQ(reduced.whole + reduced.missing + reduced.torn, 1);
    const std::vector<float> expected =
        reduced.whole == 1 ? std::vector<float>(parameters, static_cast<float>(wanted)) : none;
    EXPECT_TRUE(reader.replica() == expected) << wanted;
    if (!queues->read_published(1, published)) continue;
    for (std::size_t piece = 0; piece < shape.pieces(); ++piece) {
      const auto first = published.begin() + static_cast<std::ptrdiff_t>(shape.first_of(piece));
      const auto last = published.begin() + static_cast<std::ptrdiff_t>(shape.end_of(piece));
      EXPECT_TRUE(std::adjacent_find(first, last, std::not_equal_to<>()) == last);
    }
  }
  done = true;
  writer.join();
}

}  // namespace syncd::trainer::testing
