"""Many executions in flight: a pool of datasets, and a thread that takes results out in callbacks."""

import sys

import numpy as np

import cann_env.acl as acl

NORMAL_ONLY, HOST_TO_DEVICE, DEVICE_TO_HOST, BLOCK = 2, 1, 2, 1


def check_ret(message, ret):
    if ret != 0:
        raise RuntimeError(f"{message} failed ret={ret}")


class Net:
    def __init__(self, path, pool, interval):
        self.pool, self.interval = pool, interval
        check_ret("init", acl.init())
        check_ret("set_device", acl.rt.set_device(0))
        self.context, ret = acl.rt.create_context(0)
        check_ret("create_context", ret)
        self.stream, ret = acl.rt.create_stream()
        check_ret("create_stream", ret)
        self.model_id, ret = acl.mdl.load_from_file(path)
        check_ret("load_from_file", ret)
        self.desc = acl.mdl.create_desc()
        check_ret("get_desc", acl.mdl.get_desc(self.desc, self.model_id))
        self.free, self.used, self.results, self.exit_flag = [], [], [], False

    def _input(self, image):
        data = image.tobytes()
        memory, ret = acl.rt.malloc(len(data), NORMAL_ONLY)
        check_ret("malloc", ret)
        ret = acl.rt.memcpy(memory, len(data), acl.util.bytes_to_ptr(data), len(data), HOST_TO_DEVICE)
        check_ret("memcpy", ret)
        return self._dataset([(memory, len(data))])

    def _output(self):
        sizes = [
            acl.mdl.get_output_size_by_index(self.desc, i) for i in range(acl.mdl.get_num_outputs(self.desc))
        ]
        return self._dataset([(acl.rt.malloc(size, NORMAL_ONLY)[0], size) for size in sizes])

    def _dataset(self, memory):
        dataset = acl.mdl.create_dataset()
        for address, size in memory:
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, size))
            check_ret("add_dataset_buffer", ret)
        return dataset

    def _reports(self, args):
        context, timeout = args
        acl.rt.set_context(context)
        while not self.exit_flag:
            acl.rt.process_report(timeout)

    def _take(self, pairs):
        for _, output in pairs:
            buffer = acl.mdl.get_dataset_buffer(output, 0)
            size = acl.get_data_buffer_size(buffer)
            host, ret = acl.rt.malloc_host(size)
            check_ret("malloc_host", ret)
            check_ret(
                "memcpy",
                acl.rt.memcpy(host, size, acl.get_data_buffer_addr(buffer), size, DEVICE_TO_HOST),
            )
            self.results.append(np.frombuffer(acl.util.ptr_to_bytes(host, size), np.float32).copy())
            acl.rt.free_host(host)

    def run(self, images, times):
        for i in range(self.pool):
            self.free.append((self._input(images[i % len(images)]), self._output()))
        thread, ret = acl.util.start_thread(self._reports, [self.context, 100])
        check_ret("start_thread", ret)
        check_ret("subscribe_report", acl.rt.subscribe_report(thread, self.stream))
        for i in range(times):
            pair = self.free.pop(0)
            check_ret("execute_async", acl.mdl.execute_async(self.model_id, *pair, self.stream))
            self.used.append(pair)
            if (i + 1) % self.interval == 0:
                check_ret(
                    "launch_callback", acl.rt.launch_callback(self._take, self.used, BLOCK, self.stream)
                )
                self.free += self.used
                self.used = []
        check_ret("synchronize_stream", acl.rt.synchronize_stream(self.stream))
        check_ret("unsubscribe_report", acl.rt.unsubscribe_report(thread, self.stream))
        self.exit_flag = True
        check_ret("stop_thread", acl.util.stop_thread(thread))

    def release(self):
        for dataset in [one for pair in self.free + self.used for one in pair]:
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                buffer = acl.mdl.get_dataset_buffer(dataset, i)
                check_ret("free", acl.rt.free(acl.get_data_buffer_addr(buffer)))
                check_ret("destroy_data_buffer", acl.destroy_data_buffer(buffer))
            check_ret("destroy_dataset", acl.mdl.destroy_dataset(dataset))
        check_ret("unload", acl.mdl.unload(self.model_id))
        check_ret("destroy_desc", acl.mdl.destroy_desc(self.desc))
        check_ret("destroy_stream", acl.rt.destroy_stream(self.stream))
        check_ret("destroy_context", acl.rt.destroy_context(self.context))
        check_ret("reset_device", acl.rt.reset_device(0))
        check_ret("finalize", acl.finalize())


def main(path, images, times=6, pool=4, interval=2):
    net = Net(path, pool, interval)
    net.run(images, times)
    net.release()
    return net.results


if __name__ == "__main__":
    main(sys.argv[1], [np.ones((1, 8), np.float32)])
