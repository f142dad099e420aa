INSERT INTO customers (id, name) VALUES (1, 'the first');
