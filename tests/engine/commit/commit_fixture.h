// EngineParts with what a parity commit takes besides.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "engine/commit/committer.h"
#include "engine/read/chunk_reader.h"
#include "engine/write/buffered_chunks.h"
#include "engine/write/writer.h"
#include "tests/engine/parts_fixture.h"

namespace eplog {

class CommitTest : public ::testing::Test {
 protected:
  explicit CommitTest(const PartsShape& shape = {}) : parts_(shape) {}

  using Bytes = EngineParts::Bytes;
  [[nodiscard]] const Geometry& g() const { return parts_.g(); }
  [[nodiscard]] RowWord Word(uint32_t stripe, uint32_t index) const {
    return parts_.core.state->rows.Get(StripeIndex(stripe), index);
  }
  // The row names what was written last, and its parity is the parity of just that.
  void ExpectCommitted(uint32_t stripe) {
    const StripeIndex at(stripe);
    EXPECT_FALSE(parts_.core.state->HasPending(at));
    const std::vector<Bytes> parity = parts_.ParityOfLatest(at);
    for (uint32_t i = 0; i < g().n; ++i) {
      const auto found =
          i < g().k() ? parts_.latest.find(g().Chunk(at, i).value) : parts_.latest.end();
      const Bytes wanted = i >= g().k()                   ? parity[i - g().k()]
                           : found == parts_.latest.end() ? Bytes(g().chunk_bytes)
                                                          : found->second;
      const RowWord word = Word(stripe, i);
      if (word.word.has_slot()) {
        const auto got = parts_.SlotBytes(g().SsdOf(at, i), word.word);
        EXPECT_TRUE(std::ranges::equal(got, wanted)) << "stripe " << stripe << ", position " << i;
      } else if (word.word.is_zero()) {
        EXPECT_TRUE(wanted == Bytes(g().chunk_bytes)) << "stripe " << stripe << ", position " << i;
        continue;
      }
      EXPECT_EQ(word.crc, parts_.core.checksum(wanted))
          << "stripe " << stripe << ", position " << i;
    }
  }

  EngineParts parts_;
  ChunkReader reader_{parts_.core, &parts_.appender};
  BufferedChunks buffered_{parts_.core};
  Writer writer_{parts_.core, parts_.appender, parts_.admission, reader_, buffered_};
  Committer committer_{parts_.core, parts_.appender, parts_.flusher, reader_, writer_};
};

}  // namespace eplog
