// What must hold of a store in a device's memory, whatever the device: the same cases for the CPU
// in a GPU's place (device_store_test.cpp) and for a real one (device_store_gpu_test.cpp).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "reference_trainer/model/random.h"
#include "reference_trainer/params/device_store.h"

namespace syncd::trainer::testing {

// A worker with a stepper's memory and no stepper.
class StandInWorker {
 public:
  StandInWorker(StoreDevice& device, DeviceStore& store, int worker)
      : stand_in(device.stand_in(store.shape().parameters, worker)),
        view(stand_in->view()),
        port(store.port(worker, view)) {}

  std::vector<float> read(const float* from) const {
    std::vector<float> values(view.parameters);
    stand_in->read(values, from);
    return values;
  }
  std::vector<float> replica() const { return read(view.replica); }
  void gradient(const std::vector<float>& values) {
    stand_in->write(const_cast<float*>(view.gradient), values);
  }

  std::unique_ptr<DeviceStandIn> stand_in;
  DeviceView view;
  std::unique_ptr<DeviceStorePort> port;
};

inline std::vector<float> read_all(DeviceStore& store) {
  std::vector<float> values(store.shape().parameters);
  EXPECT_TRUE(store.read_all(values));
  return values;
}

// Adds the gradient itself: sums of whole numbers are exact.
inline constexpr SgdRule kAddTheGradient{
    .rate = -1, .scale = 1, .momentum = 0, .weight_decay = 0, .decayed = {}};

inline std::vector<float> draw(std::size_t count, std::uint64_t seed) {
  Random random(seed, Stream::kInitialParameters);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

// A device's compiler may fuse multiplications and additions.
inline void expect_near(const std::vector<float>& values, const std::vector<float>& expected,
                        float tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], tolerance * std::max(1.0F, std::abs(expected[i]))) << i;
  }
}

inline void pulls_what_it_was_made_of(StoreDevice& device) {
  const DeviceShape shape{.parameters = 1'000, .piece_floats = 64, .workers = 2};
  const std::vector<float> initial = draw(shape.parameters, 1);
  const auto store = device.create(shape, initial);
  StandInWorker worker(device, *store, 1);
  worker.port->pull();
  EXPECT_EQ(worker.port->wait(), std::nullopt);
  EXPECT_EQ(worker.replica(), initial);
  EXPECT_EQ(read_all(*store), initial);
  EXPECT_EQ(store->close_shards(0), 0U);
}

// Two workers in turn, against plain sums and the step as SgdRule says.
inline void adds_up_what_its_workers_step(StoreDevice& device, float tolerance) {
  const DeviceShape shape{.parameters = 1'000, .piece_floats = 96, .workers = 2};
  const SgdRule rule{.rate = 0.05F,
                     .scale = 1.0F / 32,
                     .momentum = 0.9F,
                     .weight_decay = 0.01F,
                     .decayed = {{{.first = 0, .count = 100}, {.first = 333, .count = 600}}}};
  const auto is_decayed = [](std::size_t i) { return i < 100 || (i >= 333 && i < 933); };
  const std::vector<float> initial = draw(shape.parameters, 1);
  const auto store = device.create(shape, initial);
  std::vector<float> host = initial;
  StandInWorker workers[] = {{device, *store, 0}, {device, *store, 1}};
  std::vector<float> velocities[] = {std::vector<float>(shape.parameters),
                                     std::vector<float>(shape.parameters)};
  for (std::uint64_t round = 0; round < 12; ++round) {
    StandInWorker& worker = workers[round % 2];
    std::vector<float>& velocity = velocities[round % 2];
    const std::vector<float> gradient = draw(shape.parameters, 10 + round);
    std::vector<float> replica = host;
    worker.port->pull();
    expect_near(worker.replica(), replica, tolerance);
    worker.gradient(gradient);
    worker.port->push(rule);
    ASSERT_EQ(worker.port->wait(), std::nullopt);
    Update update;
    for (std::size_t i = 0; i < shape.parameters; ++i) {
      const float decay = is_decayed(i) ? rule.weight_decay : 0;
      velocity[i] = rule.momentum * velocity[i] + rule.scale * gradient[i] + decay * replica[i];
      update.deltas.push_back(static_cast<float>(-rule.rate * velocity[i]));
    }
    add_update(update, host);
    add_update(update, replica);
    expect_near(worker.replica(), replica, tolerance);
    expect_near(worker.read(worker.view.velocity), velocity, tolerance);
    if (round % 5 == 4) {  // an update that came too late
      for (std::size_t i = 0; i < host.size(); ++i) host[i] -= update.deltas[i];
      worker.port->take_back();
    }
    expect_near(read_all(*store), host, tolerance);
  }
}

inline void leaves_out_shards_that_did_not_change(StoreDevice& device) {
  const DeviceShape shape{.parameters = 200, .piece_floats = 100, .workers = 2};
  const auto store = device.create(shape, std::vector<float>(shape.parameters, 1));
  StandInWorker worker(device, *store, 0);
  worker.port->pull();
  const std::vector<float> marked(shape.parameters, -7);
  worker.stand_in->write(worker.view.replica, marked);
  worker.port->pull();
  EXPECT_EQ(worker.replica(), marked) << "nothing had changed";
  StandInWorker other(device, *store, 1);
  other.gradient(std::vector<float>(shape.parameters, 2));
  other.port->push(kAddTheGradient);
  EXPECT_EQ(other.port->wait(), std::nullopt);
  worker.port->pull();
  EXPECT_EQ(worker.replica(), std::vector<float>(shape.parameters, 3));
}

// Workers push, take back and pull at once. All additions to a shard are the same for all its
// values, so that a copy with half of one shows; and they are whole numbers, so that a lost one
// shows in the end.
inline void loses_and_tears_nothing(StoreDevice& device, std::size_t parameters,
                                    std::size_t piece_floats, int workers, int rounds) {
  const DeviceShape shape{
      .parameters = parameters, .piece_floats = piece_floats, .workers = workers};
  const auto store = device.create(shape, std::vector<float>(parameters));
  std::atomic<int> torn{0};
  std::atomic<int> failed{0};
  std::atomic<bool> done{false};
  const auto look = [&](const std::vector<float>& values) {
    for (std::size_t shard = 0; shard < shape.pieces(); ++shard) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(shape.first_of(shard));
      const auto last = values.begin() + static_cast<std::ptrdiff_t>(shape.end_of(shard));
      if (std::adjacent_find(first, last, std::not_equal_to<>()) != last) ++torn;
    }
  };
  std::thread monitor([&] {
    std::vector<float> values(parameters);
    while (!done) {
      if (store->read_all(values)) look(values);
    }
  });
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      StandInWorker worker(device, *store, w);
      worker.gradient(std::vector<float>(parameters, static_cast<float>(1 + w)));
      for (int round = 0; round < rounds;) {
        worker.port->pull();
        worker.port->push(kAddTheGradient);
        if (worker.port->wait()) {  // the others were always faster: nothing was pushed
          ++failed;
          continue;
        }
        look(worker.replica());
        if (round++ % 3 == 2) worker.port->take_back();
      }
      EXPECT_EQ(worker.port->wait(), std::nullopt);
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  monitor.join();
  EXPECT_EQ(torn, 0);
  const int kept = rounds - rounds / 3;
  const float expected = static_cast<float>(kept) * static_cast<float>(workers * (workers + 1) / 2);
  EXPECT_EQ(read_all(*store), std::vector<float>(parameters, expected)) << failed;
  for (int w = 0; w < workers; ++w) EXPECT_EQ(store->close_shards(w), 0U);
}

}  // namespace syncd::trainer::testing
