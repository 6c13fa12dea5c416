/* Frames between two ranks arrive whole wherever the stream is cut, and bytes that are no frame are
 * found to be damaged. */
#include "testing.h"

#include <sys/socket.h>
#include <unistd.h>

#include "job/watch/watch_link.h"

static wd_watch_link left, right;
static wd_frame frame;

static int open_links(void **state)
{
    int ends[2];
    (void)state;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends)) return -1;
    left = (wd_watch_link){.fd = ends[0]};
    right = (wd_watch_link){.fd = ends[1]};
    return 0;
}

static int close_links(void **state)
{
    (void)state;
    wd__watch_link_close(&left);
    wd__watch_link_close(&right);
    return 0;
}

static void frames_come_whole(void **state)
{
    (void)state;
    static char most[WD_FRAME_BYTES_MAX];
    memset(most, 'm', sizeof most);
    wd__watch_link_send(&left, WD_FRAME_FAIL, "why", 3);
    wd__watch_link_send(&left, WD_FRAME_BYE, NULL, 0);
    wd__watch_link_send(&left, WD_FRAME_BEAT, most, sizeof most);
    assert_true(wd__watch_link_receive(&right));
    assert_int_equal(wd__watch_link_take(&right, &frame), WD_WATCH_LINK_FRAME);
    assert_int_equal(frame.kind, WD_FRAME_FAIL);
    assert_string_equal(frame.data, "why");
    assert_int_equal(wd__watch_link_take(&right, &frame), WD_WATCH_LINK_FRAME);
    assert_int_equal(frame.kind, WD_FRAME_BYE);
    assert_int_equal(frame.bytes, 0);
    assert_true(wd__watch_link_receive(&right));
    assert_int_equal(wd__watch_link_take(&right, &frame), WD_WATCH_LINK_FRAME);
    assert_int_equal(frame.bytes, sizeof most);
    assert_memory_equal(frame.data, most, sizeof most);
    assert_int_equal(wd__watch_link_take(&right, &frame), WD_WATCH_LINK_EMPTY);
}

/* Sends one byte at a time. */
static void a_frame_may_come_in_pieces(void **state)
{
    (void)state;
    const uint32_t head[2] = {WD_FRAME_FAIL, 4};
    char bytes[12];
    memcpy(bytes, head, sizeof head);
    memcpy(bytes + sizeof head, "text", 4);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(wd__watch_link_take(&right, &frame), WD_WATCH_LINK_EMPTY);
        assert_int_equal(send(left.fd, bytes + i, 1, 0), 1);
        assert_true(wd__watch_link_receive(&right));
    }
    assert_int_equal(wd__watch_link_take(&right, &frame), WD_WATCH_LINK_FRAME);
    assert_string_equal(frame.data, "text");
}

static void what_is_no_frame_is_damaged(void **state)
{
    (void)state;
    static const uint32_t heads[][2] = {{0, 0},
                                        {WD_FRAME_KINDS, 0},
                                        {UINT32_MAX, 0},
                                        {WD_FRAME_FAIL, WD_FRAME_BYTES_MAX + 1},
                                        {WD_FRAME_FAIL, UINT32_MAX}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        right.in_bytes = 0;
        assert_int_equal(send(left.fd, heads[i], sizeof heads[i], 0), sizeof heads[i]);
        assert_true(wd__watch_link_receive(&right));
        assert_int_equal(wd__watch_link_take(&right, &frame), WD_WATCH_LINK_DAMAGED);
    }
}

/* Takes the frames that are complete, each of `bytes`; returns how many. */
static int take_frames(size_t bytes)
{
    int taken = 0;
    wd_watch_link_state is;
    while ((is = wd__watch_link_take(&right, &frame)) == WD_WATCH_LINK_FRAME) {
        assert_int_equal(frame.bytes, bytes);
        taken++;
    }
    assert_int_equal(is, WD_WATCH_LINK_EMPTY);
    return taken;
}

/* A rank does not wait for one that receives nothing: frames for which there is no room are dropped
 * as a whole. */
static void a_side_that_takes_nothing_is_not_waited_for(void **state)
{
    (void)state;
    static char most[WD_FRAME_BYTES_MAX];
    int came = 0;
    for (int i = 0; i < 200; i++) wd__watch_link_send(&left, WD_FRAME_BEAT, most, sizeof most);
    assert_false(wd__watch_link_flush(&left));
    while (!wd__watch_link_flush(&left)) {
        assert_true(wd__watch_link_receive(&right));
        came += take_frames(sizeof most);
    }
    wd__watch_link_close(&left);
    while (wd__watch_link_receive(&right)) came += take_frames(sizeof most);
    came += take_frames(sizeof most);
    assert_int_equal(right.in_bytes, 0);
    assert_in_range(came, 2, 199);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(frames_come_whole, open_links, close_links),
        cmocka_unit_test_setup_teardown(a_frame_may_come_in_pieces, open_links, close_links),
        cmocka_unit_test_setup_teardown(what_is_no_frame_is_damaged, open_links, close_links),
        cmocka_unit_test_setup_teardown(a_side_that_takes_nothing_is_not_waited_for, open_links,
                                        close_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
